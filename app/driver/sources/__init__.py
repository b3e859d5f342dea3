"""The sources of a job graph: Spark's own sources, and Slotwise's source `rate`.

`rate` needs pyarrow and PySpark 4.2, which the environment of a program may lack, so it is imported on first use.
"""

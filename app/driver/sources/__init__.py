"""The sources of a graph: Spark's own, and `rate`, which is a data source of ours.

It needs pyarrow and PySpark 4.2, which the environment of a program may lack: it is loaded when it is used.
"""

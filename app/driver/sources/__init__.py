"""The sources of a graph: Spark's own, and `rate` and `rate-micro-batch`, which are data sources of ours.

The latter need pyarrow and PySpark 4.2, which the environment of a program may lack: `rate` is loaded when it is used.
"""

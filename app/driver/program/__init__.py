"""The execution of an unchanged PySpark program as a job: its calls of Spark are intercepted."""

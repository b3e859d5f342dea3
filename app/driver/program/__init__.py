"""An ordinary PySpark program as a job: it runs unchanged, and what it asks of Spark is taken over."""

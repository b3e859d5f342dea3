"""What runs inside a job's PySpark driver process. Of the project it imports `app.model` only."""

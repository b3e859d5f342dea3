"""The program of a job's PySpark driver process. The only other room that it imports is `app.model`."""

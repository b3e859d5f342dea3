"""The program of a job's PySpark driver process. Of the rest it imports only `app.model`, `app.durablefiles`
and `app.filelocks`."""

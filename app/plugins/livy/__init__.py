"""Livy's batch calls (docs/airflow.md): each batch is a job with an additional number."""

"""A DAG for Airflow, run by `test_airflow.py` in an environment that has Airflow and its Livy provider."""

# mypy: ignore-errors
import json
from datetime import datetime, timedelta

from airflow.providers.apache.livy.operators.livy import LivyOperator
from airflow.sdk import DAG

with DAG("neighbours", schedule=None, start_date=datetime(2026, 1, 1)) as dag:
    for name, arguments in (("well", []), ("badly", ["--fail"])):
        for deferrable in (False, True):
            LivyOperator(
                task_id=f"ends_{name}_{'deferred' if deferrable else 'polled'}",
                file="jobs/rows.py",
                args=arguments,
                name=name,
                num_executors=2,
                polling_interval=1,
                deferrable=deferrable,
                execution_timeout=timedelta(minutes=5),
            )

if __name__ == "__main__":
    run = dag.test()
    print("RESULT", json.dumps({task.task_id: task.state for task in run.get_task_instances()}))

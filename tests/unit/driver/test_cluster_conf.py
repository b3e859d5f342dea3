"""What a driver sets on a cluster, a job may not set, or its own is added: nothing that it asks for is lost."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from app.cluster.kubernetes.api import KubernetesApi
from app.cluster.kubernetes.cluster import KubernetesCluster, PodSettings
from app.cluster.ports import ExecutorCluster
from app.cluster.standalone.cluster import StandaloneCluster
from app.driver import session
from app.driver.executors import first_number_conf
from app.driver.failures import DriverError
from app.model.javaoptions import EXECUTOR_OPTIONS
from app.model.ownsettings import refused_on_cluster

JOB = "0123456789abcdef0123456789abcdef"


def standalone() -> ExecutorCluster:
    return StandaloneCluster(
        "spark://m:7077",
        ["http://m:8080"],
        executor_memory_mb=512,
        driver_host="10.0.0.5",
        now_ms=lambda: 0,
    )


def kubernetes(patience_s: float = 60.0) -> ExecutorCluster:
    api = KubernetesApi("http://api", "jobs", transport=httpx.MockTransport(lambda _: httpx.Response(500)))
    return KubernetesCluster(
        "k8s://http://api",
        "jobs",
        api,
        slots=4,
        pods=PodSettings("image", service_account="a", cpu_limit="2"),
        driver_host="10.0.0.5",
        driver_pod="slotwise-0",
        patience_s=patience_s,
        now_ms=lambda: 0,
    )


@pytest.mark.parametrize("cluster", [standalone, kubernetes])
def test_what_is_set_for_a_job_is_refused_or_added_to(cluster: Any) -> None:
    made = cluster()
    ours = {**session.CLUSTER_CONF, **first_number_conf(2), **made.executor_conf(JOB, 1)}
    accepted = [key for key in ours if refused_on_cluster([key], made.master) is None]
    assert accepted == [EXECUTOR_OPTIONS]


@pytest.mark.parametrize(
    "key",
    [
        "spark.network.timeout",
        "spark.executor.heartbeatInterval",
        "spark.decommission.enabled",
        "spark.driver.host",
    ],
)
def test_the_refusal_names_the_setting_and_why(key: str) -> None:
    for master in ("spark://m:7077", "k8s://https://api"):
        said = refused_on_cluster([key, "spark.sql.shuffle.partitions"], master)
        assert said is not None
        assert said.startswith(
            f"The config of the job may not change {key} on this cluster: how executors reach"
        )
    with pytest.raises(DriverError, match=key):
        session.check_cluster_conf({key: "x"}, "spark://m:7077")


@pytest.mark.parametrize(
    "key", ["spark.locality.wait", "spark.locality.wait.process", "spark.scheduler.mode"]
)
def test_which_executor_gets_a_task_is_not_the_jobs_to_say(key: str) -> None:
    said = refused_on_cluster([key], "spark://m:7077")
    assert said is not None and key in said and "which executor gets a task is the driver's to say" in said


def test_refusals_of_both_sorts_are_told_at_once() -> None:
    said = refused_on_cluster(["spark.task.cpus", "spark.network.timeout"], "spark://m:7077")
    assert said is not None and said.count("The config of the job may not change") == 2


def test_options_of_the_jobs_executors_come_after_ours() -> None:
    ours = session.CLUSTER_CONF[EXECUTOR_OPTIONS]
    assert session.executor_java_options({}) == ours
    assert session.executor_java_options({EXECUTOR_OPTIONS: "-Xss8m -Da=b"}) == f"{ours} -Xss8m -Da=b"


def test_executors_have_the_variables_of_the_job_unless_it_has_set_others_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: dict[str, str] = {}

    def new_context(_name: str, _master: str, settings: dict[str, str]) -> None:
        found.update(settings)
        raise OSError("that is enough")

    monkeypatch.setattr(session, "connect", lambda: None)
    monkeypatch.setattr(session, "_new_context", new_context)
    monkeypatch.setattr(session, "checkpoint_files", lambda *_: "x")
    for executors in (0, 2):
        found.clear()
        with pytest.raises(DriverError):
            session.open_session(
                app_name="job",
                master="spark://m:7077" if executors else "local[2]",
                work_dir="/w",
                socket_dir="/s",
                conf={"spark.executorEnv.TOPIC": "theirs"},
                executors=executors,
                variables={"TOPIC": "of the job", "LIMIT": "5"},
            )
        assert found["spark.executorEnv.TOPIC"] == "theirs"
        # On one host the JVM of the driver has them, and Spark's settings are those of the job.
        assert found.get("spark.executorEnv.LIMIT") == ("5" if executors else None)
        assert ("spark.redaction.regex" in found) == bool(executors)

"""Kubernetes without a cluster: `slotwise serve`, its drivers and Spark's own client against an API server that answers
from a recording, and executors that are started from the pods which Spark asks for. Not a test on a cluster."""

from __future__ import annotations

import os
import signal
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.cli.cluster_checks import PERMISSIONS
from app.cluster.kubernetes.cluster import pod_name_prefix
from tests.acceptance.clusters import on_executors
from tests.acceptance.deployment import CHECKED_SERVER, ROOT, Deployment, counting_in_place, wait_for
from tests.kubernetes.kubelet import Kubelet
from tests.kubernetes.replay import NAMESPACE, PODS, ReplayApi, Request, recorded
from tests.kubernetes.wire import Authority

pytestmark = pytest.mark.timeout(600)

STATELESS = ("numbers", "counts", "store")
IMAGE = "registry.example/slotwise:1"
TOKEN, SECOND_TOKEN = "token-of-the-recording", "token-that-came-later"
SERVER_POD = "slotwise-0"
ONE_POD = f"{PODS}/[^/]+"


class OnKubernetes(Deployment):
    """A server whose jobs run on the recorded API."""

    def command(self, *, with_points: bool) -> list[str]:
        return [sys.executable, str(CHECKED_SERVER), "serve", "--data-dir", str(self.data_dir), "--port", "0"]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    try:
        return Authority(tmp_path_factory.mktemp("authority"))
    except FileNotFoundError:
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail("openssl is missing; in CI this must run", pytrace=False)
        pytest.skip("NOT TESTED: there is no openssl here to make a certificate")


@pytest.fixture(scope="module")
def api(authority: Authority) -> Iterator[ReplayApi]:
    made = ReplayApi().listen(authority)
    made.tokens = {TOKEN}
    # The pod in which this server would run.
    pod = next(one for one in recorded("pods")["items"] if one["status"]["phase"] == "Running")
    made.add(
        {
            **pod,
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": SERVER_POD, "uid": "uid-of-the-server"},
        }
    )
    yield made
    made.close()


@pytest.fixture(scope="module")
def kubelet(api: ReplayApi, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubelet]:
    made = Kubelet(api, tmp_path_factory.mktemp("pods"), room=4)
    yield made
    made.close()


@pytest.fixture(scope="module")
def deployment(
    api: ReplayApi, kubelet: Kubelet, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    directory = tmp_path_factory.mktemp("kubernetes")
    token_file = directory / "token"
    token_file.write_text(TOKEN, encoding="utf-8")
    settings = {
        "cluster_kind": "kubernetes",
        "cluster_master": f"k8s://{api.url}",
        "cluster_namespace": NAMESPACE,
        "cluster_image": IMAGE,
        "cluster_slots": "4",
        "cluster_token_file": str(token_file),
        "cluster_ca_file": str(authority.file),
        "cluster_driver_host": "127.0.0.1",
        "cluster_executor_cpu": "500m",
        "cluster_executor_cpu_limit": "2",
        "cluster_service_account": "executor",
        "cluster_driver_pod": SERVER_POD,
        "cluster_pod_template": str(ROOT / "examples/kubernetes/chart/executor.yaml"),
        "cluster_unschedulable_seconds": "3",
    }
    made = OnKubernetes(directory, settings=settings)
    try:
        made.start(with_points=False)
        made.submit(on_executors(counting_in_place(directory, 2, 8)))
        yield made
    finally:
        made.close()


def verb_of(request: Request) -> str:
    """What a role must allow for it."""
    named = request.path != PODS
    match request.method:
        case "GET" if request.query.get("watch") == "true":
            return "watch"
        case "GET":
            return "get" if named else "list"
        case "DELETE":
            return "delete" if named else "deletecollection"
    return {"POST": "create"}.get(request.method, request.method)


def require(deployment: Deployment, upper: int) -> None:
    answer = deployment.put(dict.fromkeys(STATELESS, (1, upper)), f"to-{upper}-{uuid.uuid4().hex}")
    assert answer.is_success, answer.text


def runs_at(deployment: Deployment, parallelism: int) -> None:
    def reached() -> bool:
        ended = all(one["terminalState"] for one in deployment.history())
        return ended and set(deployment.parallelism().values()) == {parallelism}

    try:
        wait_for(f"every vertex runs at {parallelism}", reached)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{deployment.log_end()}") from None


def runs_on(deployment: Deployment, before: dict[str, Any], known: int) -> None:
    """What has come since the ``known`` records has stopped nothing of the job ``before``."""
    now, records = deployment.job(), deployment.history()
    assert now["driverPid"] == before["driverPid"]
    assert now["queries"][0]["runId"] == before["queries"][0]["runId"]
    assert {one["rung"] for one in records[: len(records) - known]} == {"in-place"}


def test_pods_are_asked_for_and_run(deployment: Deployment, api: ReplayApi, kubelet: Kubelet) -> None:
    """What Spark posts is what the settings say, and the processes of the pods carry the job."""
    runs_at(deployment, 2)
    deployment.await_progress()
    job_id = deployment.job_id
    prefix = pod_name_prefix(job_id, 1)
    made = api.sent("POST", PODS)
    assert [one.body["metadata"]["name"] for one in made] == [f"{prefix}-exec-1", f"{prefix}-exec-2"]
    for number, one in enumerate(made, 1):
        labels = one.body["metadata"]["labels"]
        wanted = {"slotwise/job": job_id, "slotwise/attempt": "1", "spark-exec-id": str(number)}
        assert wanted.items() <= labels.items()
        spec = one.body["spec"]
        assert (spec["serviceAccountName"], spec["restartPolicy"]) == ("executor", "Never")
        # Of the template.
        assert spec["securityContext"]["fsGroup"] == 10001
        assert {"name": "jobs", "persistentVolumeClaim": {"claimName": "slotwise-jobs"}} in spec["volumes"]
        (owner,) = one.body["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("Pod", SERVER_POD, "uid-of-the-server")
        (container,) = spec["containers"]
        assert (container["image"], container["args"]) == (IMAGE, ["executor"])
        assert container["resources"] == {
            "requests": {"cpu": "500m", "memory": "1024Mi"},
            "limits": {"cpu": "2", "memory": "1024Mi"},
        }
        variables = {entry["name"]: entry.get("value") for entry in container["env"]}
        assert (variables["SPARK_EXECUTOR_CORES"], variables["SPARK_EXECUTOR_MEMORY"]) == ("1", "512m")
        assert "127.0.0.1" in str(variables["SPARK_DRIVER_URL"])
        assert variables["_SPARK_AUTH_SECRET"]
        # The driver's scratch directory is no place of a pod.
        assert not str(variables["SPARK_LOCAL_DIRS"]).startswith(str(deployment.directory))
        assert TOKEN not in str(one.body)
    assert kubelet.running == [f"{prefix}-exec-1", f"{prefix}-exec-2"]
    (shown,) = deployment.get("/taskmanagers")["taskmanagers"]
    assert (shown["id"], shown["slotsNumber"], shown["freeSlots"]) == (f"kubernetes-{NAMESPACE}", 4, 2)


def test_a_replaced_token_and_refusals_of_the_api_delay_pods_and_break_nothing(
    deployment: Deployment, api: ReplayApi, kubelet: Kubelet
) -> None:
    """The client in the driver reads the file again when the token is refused, as the server does. A quota that is full
    for a moment, a server that has too much to do, a watch that is too old."""
    job, known = deployment.job(), len(deployment.history())
    Path(deployment.settings["cluster_token_file"]).write_text(SECOND_TOKEN, encoding="utf-8")
    api.tokens = {SECOND_TOKEN}
    faults = [api.fail("POST", PODS, error) for error in ("403-quota", "429", "500", "409")]
    api.forget_events()
    made = len(api.sent("POST", PODS))
    require(deployment, 4)
    runs_at(deployment, 4)
    wait_for("there are 4 pods", lambda: len(api.executors) == 4 == len(kubelet.running))
    assert all(fault.done.is_set() for fault in faults)
    assert {one.token for one in api.sent("POST", PODS)[made:]} >= {SECOND_TOKEN}
    deployment.await_progress()
    runs_on(deployment, job, known)


def test_pods_go_under_a_query_that_runs_on(deployment: Deployment, api: ReplayApi, kubelet: Kubelet) -> None:
    job, known = deployment.job(), len(deployment.history())
    require(deployment, 3)
    runs_at(deployment, 3)
    wait_for("there are 3 pods", lambda: len(api.executors) == 3 == len(kubelet.running))
    deployment.await_progress()
    runs_on(deployment, job, known)


def test_pods_that_find_no_node_make_the_job_settle_for_less(
    deployment: Deployment, api: ReplayApi, kubelet: Kubelet
) -> None:
    assert len(api.executors) == 3
    kubelet.room = 3
    require(deployment, 4)
    wait_for("a pod is asked for in vain", lambda: len(api.executors) == 4)
    runs_at(deployment, 3)
    deployment.await_progress()
    (shown,) = deployment.get("/taskmanagers")["taskmanagers"]
    assert shown["slotsNumber"] == 3
    # Spark takes back what it asked for in vain.
    wait_for("nothing waits for a node", lambda: len(api.executors) == 3)
    assert "no node has room for more" in deployment.log_file.read_text(encoding="utf-8")


def test_a_pod_whose_node_is_drained_announces_its_end_and_is_replaced(
    deployment: Deployment, api: ReplayApi, kubelet: Kubelet
) -> None:
    pid, run = deployment.job()["driverPid"], deployment.job()["queries"][0]["runId"]
    deployment.await_progress()
    leaving = api.executors[0]
    kubelet.drain(leaving)
    wait_for("another one has come", lambda: leaving not in api.executors and len(kubelet.running) == 3)
    deployment.await_progress()
    assert (deployment.job()["driverPid"], deployment.job()["queries"][0]["runId"]) == (pid, run)


def test_what_a_killed_driver_left_is_deleted_before_the_next_one(
    deployment: Deployment, api: ReplayApi, kubelet: Kubelet
) -> None:
    require(deployment, 2)
    runs_at(deployment, 2)
    wait_for("there are two pods", lambda: len(api.executors) == 2)
    before = {name: api.pods[name] for name in api.executors}
    made = len(api.sent("POST", PODS))
    # No node has room any more: the pods that it left run on until they are deleted.
    kubelet.room = 0
    os.kill(deployment.job()["driverPid"], signal.SIGKILL)
    wait_for("the next attempt asks for pods", lambda: len(api.sent("POST", PODS)) > made)
    deleted = [one for one in api.sent("DELETE", ONE_POD) if (one.body or {}).get("preconditions")]
    assert {one.path.rpartition("/")[2] for one in deleted} == set(before)
    assert {one.body["preconditions"]["uid"] for one in deleted} == {
        pod["metadata"]["uid"] for pod in before.values()
    }
    first = api.sent("POST", PODS)[made]
    assert api.requests.index(first) > max(api.requests.index(one) for one in deleted)
    assert first.body["metadata"]["labels"]["slotwise/attempt"] == "2"


def test_a_node_that_comes_where_no_pod_had_room_is_found(
    deployment: Deployment, api: ReplayApi, kubelet: Kubelet
) -> None:
    """The job waits; the server asks for room with a pod of its own until there is one."""

    def probes() -> list[str]:
        return [name for name in list(api.pods) if name.startswith("slotwise-probe-")]

    wait_for("a pod asks for room", probes, 180.0)
    explained = deployment.get(f"/jobs/{deployment.job_id}/explanation")["sentences"]
    assert any("0 of 4 slots are offered: no node has room for more: 0/3 nodes" in one for one in explained)
    (asked,) = [one for one in api.sent("POST", PODS) if one.body["metadata"]["name"] in probes()]
    # As Spark makes them, with what the template adds.
    like = api.sent("POST", PODS)[0].body["spec"]
    for key in ("resources", "image"):
        assert asked.body["spec"]["containers"][0][key] == like["containers"][0][key]
    for key in ("securityContext", "serviceAccountName", "restartPolicy"):
        assert asked.body["spec"][key] == like[key]
    kubelet.more_room(4)
    runs_at(deployment, 2)
    deployment.await_progress()
    wait_for("it is not needed any more", lambda: not probes())


def test_the_end_of_a_job_leaves_no_pods(deployment: Deployment, api: ReplayApi, kubelet: Kubelet) -> None:
    deployment.stop()
    deployment.rows()
    deployment.check_ends()
    wait_for("no pod is left", lambda: not api.executors and not kubelet.running)
    assert api.unexpected == []
    assert {verb_of(one) for one in api.requests if one.path.startswith(PODS)} == set(PERMISSIONS)
    logs = [deployment.log_file, *(deployment.data_dir / "run").glob("*.log")]
    kept = list(deployment.data_dir.rglob("spec-*.json"))
    texts = [path.read_text(encoding="utf-8") for path in [*logs, *kept]]
    assert kept and not any(token in text for token in (TOKEN, SECOND_TOKEN) for text in texts)

"""The pod template is looked at before Spark does: what is wrong with it, and what executors see of the jobs' files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from app.cluster.kubernetes.pod_spec import (
    PodSettings,
    TemplateError,
    executor_of,
    is_on_host_network,
    pod_like_executors,
    read_template,
    why_unseen,
)
from tests.kubernetes.rules import pod_faults

EXAMPLE = Path(__file__).parents[3] / "examples/kubernetes/chart/executor.yaml"
HEAD = "apiVersion: v1\nkind: Pod\n"


def template(*mounts: dict[str, Any], **volume: Any) -> dict[str, Any]:
    volumes = [{"name": "jobs", **volume}]
    return {"spec": {"containers": [{"volumeMounts": list(mounts)}, {"name": "beside"}], "volumes": volumes}}


def test_the_example_can_be_used() -> None:
    found = read_template(EXAMPLE)
    assert executor_of(found)["name"] == "spark-kubernetes-executor"
    assert why_unseen(found, Path("/jobs")) is None
    assert not is_on_host_network(found)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a: [1", "is not YAML (line 1: "),
        ("a: b\n c: d", "is not YAML (line 2: mapping values are not allowed here)"),
        ("", "should have one document, a Pod, and has 0"),
        ("# nothing yet\n---\n", "should have one document, a Pod, and has 0"),
        (f"{HEAD}---\n{HEAD}", "should have one document, a Pod, and has 2"),
        ("- a", "should be a Pod (kind: Pod, apiVersion: v1)"),
        ("spec: {}", "has no kind: it should be a Pod"),
        ("kind: Deployment\napiVersion: apps/v1", "should be a Pod (kind: Pod), found kind 'Deployment'"),
        ("kind: Pod\nspec: {containers: [{}]}", "should have apiVersion v1, found None"),
        (HEAD, "should have a Pod with at least one container (spec.containers)"),
        (
            f"{HEAD}spec: {{containers: []}}",
            "should have a Pod with at least one container (spec.containers)",
        ),
        (f"{HEAD}spec: {{containers: {{name: a}}}}", "should have a Pod with at least one container"),
        (f"{HEAD}spec: {{containers: [a]}}", "should have a Pod with at least one container"),
        (f"{HEAD}spec: {{containers: [{{}}], volumes: x}}", "should have a list of volumes in spec.volumes"),
        (
            f"{HEAD}spec: {{containers: [{{volumeMounts: [{{name: jobs}}]}}]}}",
            "should have a list of mounts with a mountPath each in spec.containers[0].volumeMounts",
        ),
        (f"{HEAD}metadata: x\nspec: {{containers: [{{}}]}}", "should have a mapping as its metadata"),
        (
            f"{HEAD}metadata: {{labels: [a]}}\nspec: {{containers: [{{}}]}}",
            "should have a mapping in metadata.labels",
        ),
        (
            f"{HEAD}metadata: {{annotations: a}}\nspec: {{containers: [{{}}]}}",
            "should have a mapping in metadata.annotations",
        ),
        (
            f"{HEAD}spec: {{containers: [{{resources: [1]}}]}}",
            "should have a mapping in spec.containers[0].resources",
        ),
        (
            f"{HEAD}spec: {{containers: [{{resources: {{limits: [1]}}}}]}}",
            "should have a mapping in spec.containers[0].resources.limits",
        ),
        (f"{HEAD}spec: &it {{containers: [{{env: *it}}]}}", "has something that a document of Kubernetes"),
        (
            f"{HEAD}spec: {{containers: [{{}}], priority: .nan}}",
            "has something that a document of Kubernetes",
        ),
        (
            f"{HEAD}spec: {{containers: [{{env: !!set {{a}}}}]}}",
            "has something that a document of Kubernetes",
        ),
        (f"{HEAD}spec: {{a: !!timestamp 2024-13-41}}", "cannot be read as YAML: month must be in"),
        (f"{HEAD}spec: {'[' * 3000}", "cannot be read as YAML: maximum recursion depth exceeded"),
    ],
)
def test_what_is_no_pod_is_refused_in_a_sentence(tmp_path: Path, text: str, fault: str) -> None:
    file = tmp_path / "executor.yaml"
    file.write_text(text)
    with pytest.raises(TemplateError) as error:
        read_template(file)
    assert str(error.value).startswith(f"cluster_pod_template: the file {file} {fault}")
    assert str(error.value).endswith(".") and "\n" not in str(error.value)


def test_a_date_is_text(tmp_path: Path) -> None:
    """As for Kubernetes: no API takes what YAML makes of it."""
    file = tmp_path / "executor.yaml"
    file.write_text(f"{HEAD}metadata: {{annotations: {{built: 2024-01-31}}}}\nspec: {{containers: [{{}}]}}")
    pod = pod_like_executors("a", {}, PodSettings("i", template=file))
    assert pod["metadata"]["annotations"] == {"built": "2024-01-31"}


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match="cannot be read: Is a directory"):
        read_template(tmp_path)
    with pytest.raises(TemplateError, match="cannot be read: No such file"):
        read_template(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(TemplateError, match="is not text in UTF-8"):
        read_template(tmp_path / "binary")


# ---- what executors see


@pytest.mark.parametrize("path", ["/jobs", "/jobs/", "/", "/jobs/of"])
def test_a_directory_is_seen_below_a_volume(path: str) -> None:
    made = template({"name": "jobs", "mountPath": path}, nfs={"server": "n", "path": "/"})
    assert why_unseen(made, Path("/jobs/of/mine")) is None


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (None, "cluster_pod_template is not set, so nothing is mounted in the pods"),
        (template(), "no volume is mounted there in the first container of cluster_pod_template"),
        (
            template({"name": "jobs", "mountPath": "/jobs/of/minerals"}),
            "no volume is mounted there in the first container of cluster_pod_template",
        ),
        (
            template({"name": "jobs", "mountPath": "/jobs"}, emptyDir={}),
            "the volume that cluster_pod_template mounts there, jobs, is the pod's own (emptyDir)",
        ),
        (
            template({"name": "jobs", "mountPath": "/jobs", "readOnly": True}, nfs={}),
            "cluster_pod_template mounts it there for reading only (readOnly)",
        ),
        (
            # The nearest one counts.
            template(
                {"name": "other", "mountPath": "/jobs"},
                {"name": "jobs", "mountPath": "/jobs/of"},
                emptyDir={},
            ),
            "the volume that cluster_pod_template mounts there, jobs, is the pod's own (emptyDir)",
        ),
    ],
)
def test_why_a_directory_is_not_seen(made: dict[str, Any] | None, reason: str) -> None:
    assert why_unseen(made, Path("/jobs/of/mine")) == reason


def test_on_the_network_of_the_node_loopback_is_the_nodes() -> None:
    assert not is_on_host_network(None)
    assert is_on_host_network({"spec": {"hostNetwork": True}})


# ---- pods that the server asks for itself


def test_a_pod_like_executors_has_what_the_template_says_and_what_spark_sets(tmp_path: Path) -> None:
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": {"team": "a"}, "annotations": {"b": "c"}, "name": "theirs"},
        "spec": {
            "nodeSelector": {"disk": "ssd"},
            "restartPolicy": "Always",
            "containers": [
                {
                    "name": "mine",
                    "image": "other",
                    "command": ["x"],
                    "lifecycle": {"preStop": {}},
                    "livenessProbe": {},
                    "resources": {"requests": {"cpu": "9", "gpu": "1"}, "limits": {"gpu": "1"}},
                },
                {"name": "beside", "image": "sidecar"},
            ],
        },
    }
    file = tmp_path / "t.yaml"
    file.write_text(yaml.safe_dump(document))
    pods = PodSettings("image:1", "account", 1024, 512, "500m", "2", file)
    made = pod_like_executors("asks", {"slotwise/job": "probe-x"}, pods, command=["true"])
    assert made["metadata"] == {
        "name": "asks",
        "labels": {"team": "a", "spark-role": "executor", "slotwise/job": "probe-x"},
        "annotations": {"b": "c"},
    }
    assert made["spec"] == {
        "nodeSelector": {"disk": "ssd"},
        "restartPolicy": "Never",
        "serviceAccountName": "account",
        "containers": [
            {
                "name": "mine",
                "image": "image:1",
                "command": ["true"],
                "resources": {
                    "requests": {"cpu": "500m", "gpu": "1", "memory": "1536Mi"},
                    "limits": {"gpu": "1", "memory": "1536Mi", "cpu": "2"},
                },
            },
            {"name": "beside", "image": "sidecar"},
        ],
    }
    assert pod_faults(made) == []
    # The document that was read is nobody's to change.
    assert read_template(file) == document


def test_without_a_template_it_is_as_spark_makes_it() -> None:
    made = pod_like_executors("asks", {}, PodSettings("image:1"))
    assert pod_faults(made) == []
    (container,) = made["spec"]["containers"]
    assert (container["name"], container["args"]) == ("spark-kubernetes-executor", ["executor"])

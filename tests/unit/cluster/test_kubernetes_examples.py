"""The manifests in examples/kubernetes: they fit each other, the settings and the program. Nothing applies them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from app.cli.kubernetes_checks import PERMISSIONS
from app.settings import ENV_PREFIX, load_settings
from tests.kubernetes.rules import pod_faults

EXAMPLES = Path(__file__).parents[3] / "examples/kubernetes"
NAMESPACE = "jobs"


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLES / name).read_text(encoding="utf-8")))


def of_kind(name: str, kind: str) -> dict[str, Any]:
    (found,) = (one for one in documents(name) if one["kind"] == kind)
    return found


def server() -> dict[str, Any]:
    spec: dict[str, Any] = of_kind("server.yaml", "StatefulSet")["spec"]["template"]["spec"]
    return spec


def variables() -> dict[str, dict[str, Any]]:
    (container,) = server()["containers"]
    return {entry["name"]: entry for entry in container["env"]}


@pytest.mark.parametrize("name", ["rbac.yaml", "server.yaml", "executor.yaml"])
def test_every_manifest_is_of_a_known_kind_and_of_the_namespace(name: str) -> None:
    kinds = {
        "ServiceAccount": "v1",
        "Role": "rbac.authorization.k8s.io/v1",
        "RoleBinding": "rbac.authorization.k8s.io/v1",
        "PersistentVolumeClaim": "v1",
        "StatefulSet": "apps/v1",
        "Service": "v1",
        "Pod": "v1",
    }
    for one in documents(name):
        assert one["apiVersion"] == kinds[one["kind"]]
        if name != "executor.yaml":
            assert one["metadata"]["namespace"] == NAMESPACE


def test_the_role_allows_what_doctor_asks_for_and_no_more() -> None:
    rules = {tuple(rule["resources"]): rule["verbs"] for rule in of_kind("rbac.yaml", "Role")["rules"]}
    assert rules == {("pods",): list(PERMISSIONS), ("resourcequotas",): ["list"]}
    (subject,) = of_kind("rbac.yaml", "RoleBinding")["subjects"]
    assert subject["name"] == server()["serviceAccountName"]


def test_the_environment_of_the_server_is_one_of_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"status.podIP": "10.1.0.9", "metadata.name": "slotwise-0"}
    for name, entry in variables().items():
        value = entry.get("value") or given[entry["valueFrom"]["fieldRef"]["fieldPath"]]
        monkeypatch.setenv(name, value)
    settings = load_settings()
    assert settings.cluster_kind == "kubernetes"
    assert (settings.cluster_driver_host, settings.cluster_driver_pod) == ("10.1.0.9", "slotwise-0")
    assert settings.cluster_namespace == NAMESPACE
    accounts = [one["metadata"]["name"] for one in documents("rbac.yaml") if one["kind"] == "ServiceAccount"]
    assert settings.cluster_service_account in accounts
    (container,) = server()["containers"]
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert settings.token_file is not None and str(settings.token_file.parent) in mounts
    assert settings.cluster_pod_template is not None and str(settings.cluster_pod_template.parent) in mounts
    assert settings.cluster_pod_template.name == "executor.yaml"
    assert container["image"] == settings.cluster_image


def test_kubernetes_sets_no_variables_that_look_like_settings() -> None:
    """For a Service of this name it would set SLOTWISE_PORT=tcp://..., unless told not to."""
    service = of_kind("server.yaml", "Service")["metadata"]["name"]
    assert f"{service.upper()}_" == ENV_PREFIX
    assert server()["enableServiceLinks"] is False


def test_pods_made_from_the_template_write_state_where_the_server_does() -> None:
    template = of_kind("executor.yaml", "Pod")
    (executor,), (container,) = template["spec"]["containers"], server()["containers"]
    jobs = next(one for one in container["volumeMounts"] if one["name"] == "jobs")
    # And nothing else: the database is the server's alone.
    assert executor["volumeMounts"] == [jobs]
    assert variables()["SLOTWISE_JOBS_DIR"]["value"] == jobs["mountPath"]
    claims = {
        one["metadata"]["name"]: one["spec"]["accessModes"]
        for one in documents("server.yaml")
        if one["kind"] == "PersistentVolumeClaim"
    }
    assert claims == {"slotwise-data": ["ReadWriteOnce"], "slotwise-jobs": ["ReadWriteMany"]}
    assert template["spec"]["volumes"] == [
        {"name": "jobs", "persistentVolumeClaim": {"claimName": "slotwise-jobs"}}
    ]
    assert template["spec"]["volumes"][0] in server()["volumes"]
    assert template["spec"]["securityContext"] == server()["securityContext"]
    # Spark gives it the rest.
    made = {**template, "metadata": {"name": "executor"}}
    assert pod_faults(made) == ["has a container without an image"]


def test_the_image_has_what_pods_call() -> None:
    text = (EXAMPLES / "Dockerfile").read_text(encoding="utf-8")
    assert text.startswith("# UNTESTED")
    for script in ("entrypoint.sh", "decom.sh"):
        assert f"{script} /opt/{script}" in text
        assert (EXAMPLES / script).stat().st_mode & 0o111


def test_the_tokens_are_not_readable_by_everyone() -> None:
    """The server refuses such a file, and a secret's files are 0644 if nothing is said."""
    (tokens,) = (volume for volume in server()["volumes"] if volume["name"] == "tokens")
    assert tokens["secret"]["defaultMode"] & 0o007 == 0
    assert server()["securityContext"]["fsGroup"]

"""What is in examples/kubernetes: the chart and its manifests fit each other, the settings and the program. Nothing
applies them; `tests/integration/test_helm_chart.py` renders the chart."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.api.app import SlotwiseApi
from app.cli.cluster_checks import PERMISSIONS
from app.settings import ENV_PREFIX, Settings, load_settings
from tests.kubernetes.rules import pod_faults

EXAMPLES = Path(__file__).parents[3] / "examples/kubernetes"
CHART = EXAMPLES / "chart"
TEMPLATES = {path.name: path.read_text(encoding="utf-8") for path in (CHART / "templates").iterdir()}
NAMESPACE = "jobs"
MANIFESTS: list[dict[str, Any]] = list(
    yaml.safe_load_all((EXAMPLES / "manifests.yaml").read_text(encoding="utf-8"))
)
OF_EXECUTORS = {"matchExpressions": [{"key": "slotwise/job", "operator": "Exists"}]}
OF_THE_SERVER = {"matchLabels": {"app": "slotwise"}}


def of_kind(kind: str, name: str = "slotwise") -> dict[str, Any]:
    (found,) = (one for one in MANIFESTS if (one["kind"], one["metadata"]["name"]) == (kind, name))
    return found


def server() -> dict[str, Any]:
    spec: dict[str, Any] = of_kind("StatefulSet")["spec"]["template"]["spec"]
    return spec


def container() -> dict[str, Any]:
    (found,) = server()["containers"]
    return dict(found)


def pod_template() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(of_kind("ConfigMap", "slotwise-executor")["data"]["executor.yaml"])
    return found


def variables() -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for entry in container()["env"]}


def test_every_manifest_is_of_a_known_kind_and_of_the_namespace() -> None:
    kinds = {
        "ServiceAccount": "v1",
        "Role": "rbac.authorization.k8s.io/v1",
        "RoleBinding": "rbac.authorization.k8s.io/v1",
        "PersistentVolumeClaim": "v1",
        "StatefulSet": "apps/v1",
        "Service": "v1",
        "ConfigMap": "v1",
        "NetworkPolicy": "networking.k8s.io/v1",
        "PodDisruptionBudget": "policy/v1",
    }
    assert {one["kind"] for one in MANIFESTS} == set(kinds)
    for one in MANIFESTS:
        assert one["apiVersion"] == kinds[one["kind"]]
        assert one["metadata"]["namespace"] == NAMESPACE


def test_the_role_allows_what_doctor_asks_for_and_no_more() -> None:
    rules = {tuple(rule["resources"]): rule["verbs"] for rule in of_kind("Role")["rules"]}
    assert rules == {("pods",): list(PERMISSIONS), ("resourcequotas",): ["list"]}
    (subject,) = of_kind("RoleBinding")["subjects"]
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
    accounts = [one["metadata"]["name"] for one in MANIFESTS if one["kind"] == "ServiceAccount"]
    assert settings.cluster_service_account in accounts
    mounts = {mount["mountPath"] for mount in container()["volumeMounts"]}
    assert settings.token_file is not None and str(settings.token_file.parent) in mounts
    assert settings.cluster_pod_template is not None and str(settings.cluster_pod_template.parent) in mounts
    assert settings.cluster_pod_template.name == "executor.yaml"
    assert container()["image"] == settings.cluster_image


def test_every_variable_of_the_chart_is_a_setting_and_every_value_is_used() -> None:
    text = "".join(TEMPLATES.values())
    named = set(re.findall(rf"{ENV_PREFIX}[A-Z_]+(?=$|\n)", text, re.MULTILINE))
    assert "SLOTWISE_DATABASE_URL" in named
    assert {name.removeprefix(ENV_PREFIX).lower() for name in named} <= set(Settings.model_fields)

    def leaves(values: dict[str, Any], place: str = "") -> set[str]:
        found = set()
        for name, value in values.items():
            whole = not isinstance(value, dict) or not value or name == "resources"
            found |= {place + name} if whole else leaves(value, f"{place}{name}.")
        return found

    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert leaves(values) == set(re.findall(r"\.Values\.([\w.]+)", text))
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    assert set(schema["properties"]) == {"global", *values}


def test_the_probes_ask_what_needs_no_token() -> None:
    paths = {container()[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
    assert paths == {"/health/live", "/health/ready"}
    document = SlotwiseApi("0", with_tokens=True).openapi()
    assert all(document["paths"][path]["get"]["security"] == [] for path in paths)


def test_executors_reach_drivers_and_each_other_and_nobody_else_does() -> None:
    server_policy, executor_policy = (
        of_kind("NetworkPolicy", name)["spec"] for name in ("slotwise", "slotwise-executor")
    )
    assert (server_policy["podSelector"], executor_policy["podSelector"]) == (OF_THE_SERVER, OF_EXECUTORS)
    drivers, clients = server_policy["ingress"]
    assert drivers == {"from": [{"podSelector": OF_EXECUTORS}]}
    assert clients["ports"] == [{"port": container()["ports"][0]["name"]}]
    assert executor_policy["ingress"] == [
        {"from": [{"podSelector": OF_THE_SERVER}, {"podSelector": OF_EXECUTORS}]}
    ]
    selector = of_kind("PodDisruptionBudget")["spec"]["selector"]
    labels = of_kind("StatefulSet")["spec"]["template"]["metadata"]["labels"]
    assert selector == OF_THE_SERVER == {"matchLabels": labels}


def test_kubernetes_sets_no_variables_that_look_like_settings() -> None:
    """For a Service of this name it would set SLOTWISE_PORT=tcp://..., unless told not to."""
    assert f"{of_kind('Service')['metadata']['name'].upper()}_" == ENV_PREFIX
    assert server()["enableServiceLinks"] is False


def test_pods_made_from_the_template_write_state_where_the_server_does() -> None:
    template = pod_template()
    assert template == yaml.safe_load((CHART / "executor.yaml").read_text(encoding="utf-8"))
    (executor,) = template["spec"]["containers"]
    jobs = next(one for one in container()["volumeMounts"] if one["name"] == "jobs")
    # And nothing else: the database is the server's alone.
    assert executor["volumeMounts"] == [jobs]
    assert variables()["SLOTWISE_JOBS_DIR"]["value"] == jobs["mountPath"]
    claims = {
        one["metadata"]["name"]: one["spec"]["accessModes"]
        for one in MANIFESTS
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

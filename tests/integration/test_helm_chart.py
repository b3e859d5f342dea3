"""The chart in examples/kubernetes: Helm itself renders it, and Kubernetes' own schemas accept what comes out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.settings import load_settings

EXAMPLES = Path(__file__).parents[2] / "examples/kubernetes"
HELM = "helm.sh/helm/v3/cmd/helm@v3.19.0"
KUBECONFORM = "github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0"
SCHEMAS = "kubernetes-validate==1.37.0"
# The oldest and the newest of Kubernetes that the package has.
VERSIONS = ("v1.25.0", "v1.37.0")
HASH = "0" * 64
DEFAULTS = ("--set", "tokens.existingSecret=slotwise-tokens")
WITH_ALL = {
    "image": "registry.example/slotwise:2",
    "imagePullPolicy": "Always",
    "tokens": {"lines": [f"ops:sha256:{HASH}", f"airflow:sha256:{HASH}"]},
    "database": {"existingSecret": "slotwise-database"},
    "slots": 3,
    "executor": {
        "cpu": "500m",
        "cpuLimit": "1",
        "memoryMb": 1024,
        "overheadMb": 600,
        "podTemplate": "kind: Pod\n",
    },
    "settings": {"history_max_age_days": 30, "livy_files_dir": "/programs", "appcds": False},
    "volumes": [{"name": "programs", "emptyDir": {}}],
    "volumeMounts": [{"name": "programs", "mountPath": "/programs", "readOnly": True}],
    "storage": {"data": {"className": "fast"}, "jobs": {"size": "1Ti", "className": "shared"}},
    "service": {"type": "LoadBalancer", "port": 80},
    "networkPolicy": {"clients": [{"namespaceSelector": {}}]},
    "podDisruptionBudget": {"enabled": False},
}

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(shutil.which("go") is None, reason="Helm is built from its source, with Go"),
]


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with `helm`, `kubeconform`, and Kubernetes' schemas by version."""
    directory = tmp_path_factory.mktemp("tools")
    environment = {**os.environ, "GOBIN": str(directory), "GOFLAGS": "-mod=mod"}
    for module in (HELM, KUBECONFORM):
        subprocess.run(["go", "install", module], check=True, cwd=directory, env=environment)
    pip = [sys.executable, "-m", "venv", str(directory / "venv")]
    subprocess.run(pip, check=True)
    python = directory / "venv" / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", SCHEMAS], check=True)
    (shipped,) = (directory / "venv").glob(
        "lib/python*/site-packages/kubernetes_validate/kubernetes-json-schema"
    )
    for version in VERSIONS:
        (directory / version).mkdir()
        for path in (shipped / f"{version}-local-strict").glob("*.json"):
            # They refer to each other by addresses under which nobody serves them.
            schema = json.loads(path.read_text().replace("/api/_definitions.json", "_definitions.json"))
            schema.pop("$id", None)
            (directory / version / path.name).write_text(json.dumps(schema))
    return directory


def helm(tools: Path, *arguments: str, status: int = 0) -> str:
    told = subprocess.run(
        [str(tools / "helm"), *arguments], cwd=EXAMPLES, capture_output=True, text=True, timeout=120
    )
    assert told.returncode == status, told.stdout + told.stderr
    return told.stdout if status == 0 else told.stderr


def rendered(tools: Path, *arguments: str, status: int = 0) -> str:
    return helm(tools, "template", "slotwise", "chart", "--namespace", "jobs", *arguments, status=status)


def conforms(tools: Path, manifests: str) -> list[str]:
    """What is wrong with them, by any version."""
    found = []
    for version in VERSIONS:
        schemas = f"{tools / version}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
        told = subprocess.run(
            [str(tools / "kubeconform"), "-strict", "-schema-location", schemas],
            input=manifests,
            capture_output=True,
            text=True,
            timeout=120,
        )
        found += told.stdout.splitlines()
    return found


@pytest.fixture
def with_all(tmp_path: Path) -> tuple[str, str]:
    """Arguments that give every value."""
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(WITH_ALL))
    return "--values", str(tmp_path / "values.yaml")


def test_helm_and_kubernetes_accept_the_chart(tools: Path, with_all: tuple[str, str]) -> None:
    for arguments in (DEFAULTS, with_all):
        assert "0 chart(s) failed" in helm(tools, "lint", "chart", "--strict", *arguments)
        assert conforms(tools, rendered(tools, *arguments)) == []
    # They do look: a field that there is not, and a number that is none.
    for good, bad in (("serviceName:", "serviceNamed:"), ("replicas: 1", "replicas: one")):
        broken = rendered(tools, *DEFAULTS).replace(good, bad)
        assert len(conforms(tools, broken)) == len(VERSIONS), bad


def test_the_manifests_are_the_chart_with_its_defaults(tools: Path) -> None:
    header, _, kept = (EXAMPLES / "manifests.yaml").read_text().partition("---\n")
    assert f"---\n{kept}" == rendered(tools, *DEFAULTS)
    assert " ".join(DEFAULTS) in header


def test_every_variable_of_a_chart_with_all_values_is_a_setting(
    tools: Path, with_all: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    manifests: list[dict[str, Any]] = list(yaml.safe_load_all(rendered(tools, *with_all)))
    by_kind = {(one["kind"], one["metadata"]["name"]): one for one in manifests}
    (container,) = by_kind["StatefulSet", "slotwise"]["spec"]["template"]["spec"]["containers"]
    given = {
        "status.podIP": "10.1.0.9",
        "metadata.name": "slotwise-0",
        "slotwise-database": "postgresql+psycopg://slotwise@db/slotwise",
    }
    for entry in container["env"]:
        source = entry.get("valueFrom", {})
        of = source.get("fieldRef", {}).get("fieldPath") or source.get("secretKeyRef", {}).get("name")
        monkeypatch.setenv(entry["name"], entry["value"] if of is None else given[of])
    settings = load_settings()
    assert settings.url == given["slotwise-database"]
    assert (settings.cluster_slots, settings.cluster_executor_cpu_limit) == (3, "1")
    assert (settings.history_max_age_days, str(settings.livy_files_dir), settings.appcds) == (
        30,
        "/programs",
        False,
    )
    tokens = by_kind["Secret", "slotwise-tokens"]["stringData"]["tokens"]
    assert tokens.splitlines() == [f"ops:sha256:{HASH}", f"airflow:sha256:{HASH}"]
    assert by_kind["ConfigMap", "slotwise-executor"]["data"]["executor.yaml"].strip() == "kind: Pod"


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("slotz=3", "additional properties 'slotz' not allowed"),
        ("slots=0", "minimum: got 0, want 1"),
        ("settings.LogLevel=debug", "invalid propertyName 'LogLevel'"),
        ("tokens.lines={ops:plain-token-of-somebody}", "does not match pattern"),
        (
            "tokens.existingSecret=",
            "Give tokens.lines (name:sha256:<hash of a token>) or tokens.existingSecret",
        ),
    ],
)
def test_wrong_values_are_refused(tools: Path, wrong: str, sentence: str) -> None:
    assert sentence in rendered(tools, *DEFAULTS, "--set", wrong, status=1)

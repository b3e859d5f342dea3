"""`doctor` looks at Kubernetes, and says in words what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from app.cli.cluster_checks import PERMISSIONS, kubernetes_checks
from app.cli.doctor import Check, run_checks
from app.cluster.kubernetes.api import KubernetesApi
from app.settings import Settings, load_settings
from tests.kubernetes.replay import NAMESPACE, PODS, REVIEWS, ReplayApi

TOKEN = "token-of-the-recording"
EXAMPLE = Path(__file__).parents[3] / "examples/kubernetes/chart/executor.yaml"
OF_PODS = ("pod template", "files of jobs in pods", "drivers")


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> ReplayApi:
    made = ReplayApi()
    made.tokens = {TOKEN}
    begin = KubernetesApi.__init__

    def with_recording(self: KubernetesApi, *args: Any, **more: Any) -> None:
        begin(self, *args, **more, transport=httpx.MockTransport(made.respond))

    monkeypatch.setattr(KubernetesApi, "__init__", with_recording)
    return made


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "token").write_text(TOKEN)
    return load_settings(
        data_dir=tmp_path,
        port=0,
        cluster_kind="kubernetes",
        cluster_master="k8s://http://api.example:6443",
        cluster_namespace=NAMESPACE,
        cluster_image="registry.example/slotwise:1",
        cluster_slots=4,
        cluster_driver_host="10.0.0.5",
        cluster_service_account="executor",
        cluster_executor_cpu_limit="2",
        cluster_token_file=tmp_path / "token",
        cluster_pod_template=EXAMPLE,
        jobs_dir="/jobs",
    )


def checks(settings: Settings) -> dict[str, Check]:
    return {check.name: check for check in kubernetes_checks(settings)}


def of_api(settings: Settings) -> list[Check]:
    return [check for name, check in checks(settings).items() if name not in OF_PODS]


def test_a_cluster_that_would_take_executors(api: ReplayApi, settings: Settings) -> None:
    found = [check for check in run_checks(settings) if check.name.startswith("Kubernetes")]
    assert [(check.name, check.ok, check.advice) for check in found] == [
        ("Kubernetes API", True, ""),
        ("Kubernetes account", True, ""),
        ("Kubernetes pods", True, ""),
    ]
    assert found[0].found == "v1.33.2 at http://api.example:6443"
    (tried,) = api.sent("POST", PODS)
    assert tried.query == {"dryRun": "All"}
    (container,) = tried.body["spec"]["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "1", "memory": "1024Mi"},
        "limits": {"memory": "1024Mi", "cpu": "2"},
    }
    assert tried.body["spec"]["serviceAccountName"] == "executor"
    assert (api.pods, api.unexpected) == ({}, [])
    asked = [one.body["spec"]["resourceAttributes"] for one in api.sent("POST", REVIEWS)]
    assert [one["verb"] for one in asked if one["resource"] == "pods"] == list(PERMISSIONS)


def test_what_the_account_may_not_do_is_named(api: ReplayApi, settings: Settings) -> None:
    api.denied = {("create", "pods"), ("watch", "pods"), ("list", "resourcequotas")}
    found = checks(settings)
    assert found["Kubernetes account"].found == f"may not create, watch pods in {NAMESPACE}"
    assert not found["Kubernetes account"].ok and "docs/kubernetes.md" in found["Kubernetes account"].advice
    assert found["Kubernetes quotas"].ok and "list resourcequotas" in found["Kubernetes quotas"].advice
    assert not api.sent("POST", PODS)


def test_a_pod_that_would_not_be_let_in(api: ReplayApi, settings: Settings) -> None:
    api.fail("POST", PODS, "403-quota")
    check = checks(settings)["Kubernetes pods"]
    assert not check.ok and "exceeded quota: executors" in check.found


@pytest.mark.parametrize(
    ("error", "advice"),
    [("401", "check cluster_token_file"), ("403", "Bind the account"), ("500", "API server")],
)
def test_an_api_that_does_not_let_us_in(api: ReplayApi, settings: Settings, error: str, advice: str) -> None:
    api.fail("GET", "/version", error)
    (check,) = of_api(settings)
    assert not check.ok and advice in check.advice and TOKEN not in check.found


def test_an_api_that_is_not_there(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    begin = KubernetesApi.__init__
    monkeypatch.setattr(
        KubernetesApi,
        "__init__",
        lambda self, *args, **more: begin(self, *args, **more, transport=httpx.MockTransport(refuse)),
    )
    (check,) = of_api(settings)
    assert check.found == "http://api.example:6443 does not answer: refused."
    assert "cluster_master" in check.advice


def test_a_token_with_a_line_break_is_found_before_spark_shows_it(api: ReplayApi, settings: Settings) -> None:
    assert settings.cluster_token_file is not None
    settings.cluster_token_file.write_text(TOKEN + "\n")
    (check,) = of_api(settings)
    assert not check.ok and "no line break" in check.found and TOKEN not in check.found


# ---- what can be told of the pods without the API


def changed(settings: Settings, **more: Any) -> dict[str, Check]:
    return checks(settings.model_copy(update=more))


def test_pods_that_see_the_files_of_jobs_and_reach_the_drivers(api: ReplayApi, settings: Settings) -> None:
    found = [check for name, check in checks(settings).items() if name in OF_PODS]
    assert [(check.name, check.ok, check.advice) for check in found] == [(name, True, "") for name in OF_PODS]
    assert [check.found for check in found] == [
        str(EXAMPLE),
        "executors see /jobs",
        "executors are to reach them at 10.0.0.5",
    ]
    # The pod that is tried has what the template says.
    (tried,) = api.sent("POST", PODS)
    assert tried.body["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "slotwise-jobs"}


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_the_pods_own_loopback_address_is_a_problem(api: ReplayApi, settings: Settings, host: str) -> None:
    check = changed(settings, cluster_driver_host=host)["drivers"]
    assert not check.ok and "each pod's own loopback address" in check.found
    assert "cluster_driver_host" in check.advice


def test_not_so_on_the_network_of_the_node(api: ReplayApi, settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(EXAMPLE.read_text().replace("spec:", "spec:\n  hostNetwork: true"))
    more = {"cluster_driver_host": "127.0.0.1", "cluster_pod_template": file}
    assert changed(settings, **more)["drivers"].ok


@pytest.mark.parametrize(
    ("more", "found", "advice"),
    [
        (
            {"jobs_dir": Path("/other")},
            "executors do not see /other: no volume is mounted there",
            "Mount a volume",
        ),
        ({"cluster_pod_template": None}, "cluster_pod_template is not set", "Mount a volume"),
        ({"jobs_dir": None}, "no volume is mounted there", "and set jobs_dir to it"),
    ],
)
def test_files_of_jobs_that_no_pod_sees_are_a_problem(
    api: ReplayApi, settings: Settings, more: dict[str, Any], found: str, advice: str
) -> None:
    check = changed(settings, **more)["files of jobs in pods"]
    assert not check.ok and found in check.found and advice in check.advice


def test_a_template_that_spark_could_not_use_is_a_problem_and_no_pod_is_tried(
    api: ReplayApi, settings: Settings, tmp_path: Path
) -> None:
    file = tmp_path / "t.yaml"
    file.write_text("kind: Deployment")
    found = changed(settings, cluster_pod_template=file)
    assert not found["pod template"].ok
    assert found["pod template"].found.startswith(f"cluster_pod_template: the file {file} should be a Pod")
    assert list(found) == ["pod template", "Kubernetes API", "Kubernetes account"]
    assert api.sent("POST", PODS) == []

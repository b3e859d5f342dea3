"""What `slotwise doctor` says of Kubernetes: whether the API is there, lets us in, and would take an executor's pod."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from app.model.addresses import is_loopback

if TYPE_CHECKING:
    from app.cluster.kubernetes.api import KubernetesApi
    from app.settings import Settings

# What Spark's client does with pods from the drivers, and the server itself.
PERMISSIONS = ("create", "get", "list", "watch", "delete", "deletecollection")

Line = tuple[str, bool, str, str]
"""Name, whether it is well, what was found, and what to do."""


def kubernetes_lines(settings: Settings) -> Iterator[Line]:
    """One after another, as far as it makes sense to go on."""
    from app.cluster.kubernetes.api import ApiError
    from app.worker.executor_clusters import api_of

    name = "Kubernetes API"
    try:
        api = api_of(settings)
    except ApiError as error:
        yield name, False, str(error), "Correct cluster_token_file or cluster_ca_file."
        return
    with asyncio.Runner() as runner:
        try:
            yield name, True, f"{runner.run(api.version())} at {api.server}", ""
            yield from _of_account(settings, api, runner)
        except ApiError as error:
            yield name, False, str(error), _advice(error.status)
        finally:
            runner.run(api.close())
    if is_loopback(settings.cluster_driver_host):
        found = f"{settings.cluster_driver_host} is the pods' own loopback address"
        yield "drivers", True, found, "Set cluster_driver_host to an address of this host that pods reach."


def _of_account(settings: Settings, api: KubernetesApi, runner: asyncio.Runner) -> Iterator[Line]:
    from app.cluster.kubernetes.api import ApiError

    namespace = settings.cluster_namespace
    missing = [verb for verb in PERMISSIONS if not runner.run(api.may(verb, "pods"))]
    found = f"may not {', '.join(missing)} pods in {namespace}" if missing else f"may use pods in {namespace}"
    advice = "Bind the account to the role in docs/kubernetes.md." if missing else ""
    yield "Kubernetes account", not missing, found, advice
    if not runner.run(api.may("list", "resourcequotas")):
        advice = "Let the account list resourcequotas; without it slots are offered that quotas forbid."
        yield "Kubernetes quotas", True, f"cannot be read in {namespace}", advice
    if missing:
        return
    try:
        runner.run(api.try_pod(sample_pod(settings)))
    except ApiError as error:
        advice = "Correct the settings of the cluster or the namespace: executors would not get pods."
        yield "Kubernetes pods", False, str(error), advice
    else:
        found = f"one with {settings.cluster_image} would be let in (a dry run; nothing was made)"
        yield "Kubernetes pods", True, found, ""


def sample_pod(settings: Settings) -> dict[str, Any]:
    """A pod that asks for what executors ask for. The template is Spark's to read, and is not in it."""
    from app.worker.executor_clusters import pod_settings

    pods = pod_settings(settings)
    memory = f"{pods.memory_mb + pods.overhead_mb}Mi"
    limits = {"memory": memory, **({} if pods.cpu_limit is None else {"cpu": pods.cpu_limit})}
    account = {} if pods.service_account is None else {"serviceAccountName": pods.service_account}
    container = {
        "name": "spark-kubernetes-executor",
        "image": pods.image,
        "args": ["executor"],
        "resources": {"requests": {"cpu": pods.cpu, "memory": memory}, "limits": limits},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "slotwise-doctor", "labels": {"spark-role": "executor"}},
        "spec": {"restartPolicy": "Never", "containers": [container], **account},
    }


def _advice(status: int | None) -> str:
    match status:
        case None:
            return "Check cluster_master, the network, and cluster_ca_file."
        case 401:
            return "The token is not accepted: check cluster_token_file."
        case 403:
            return "Bind the account to the role in docs/kubernetes.md."
        case _:
            return "Look at the API server."

"""The checks of `slotwise doctor` for Kubernetes: the API answers, accepts the token, and would admit an
executor's pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from app.cli.doctor import Check
from app.model.addresses import is_loopback

if TYPE_CHECKING:
    from app.cluster.kubernetes.api import KubernetesApi
    from app.settings import Settings

# What Spark's client does with pods from the drivers, and the server itself.
PERMISSIONS = ("create", "get", "list", "watch", "delete", "deletecollection")


def kubernetes_checks(settings: Settings) -> Iterator[Check]:
    """One after another, as far as it makes sense to go on."""
    from app.cluster.kubernetes.api import ApiError
    from app.worker.slots.executor_clusters import api_of

    template, *pods = _of_pods(settings)
    yield template
    yield from pods
    name = "Kubernetes API"
    try:
        api = api_of(settings)
    except ApiError as error:
        yield Check(name, False, str(error), "Correct cluster_token_file or cluster_ca_file.")
        return
    with asyncio.Runner() as runner:
        try:
            yield Check(name, True, f"{runner.run(api.version())} at {api.server}")
            yield from _of_account(settings, api, runner, is_template_usable=template.ok)
        except ApiError as error:
            yield Check(name, False, str(error), _advice(error.status))
        finally:
            runner.run(api.close())


def _of_pods(settings: Settings) -> Iterator[Check]:
    """What can be told of the pods without the API; the first line is about the template."""
    from app.cluster.kubernetes.template import TemplateError, is_on_host_network, read_template, why_unseen

    file, template = settings.cluster_pod_template, None
    try:
        template = None if file is None else read_template(file)
    except TemplateError as error:
        yield Check("pod template", False, str(error), "Correct it: no executor would start.")
        return
    yield Check("pod template", True, "none (cluster_pod_template)" if file is None else str(file))
    place = settings.place_of_jobs
    reason = why_unseen(template, place)
    found = f"executors see {place}" if reason is None else f"executors do not see {place}: {reason}"
    advice = (
        "Mount a volume there that all pods and this server share, in the pod template"
        f"{'' if settings.jobs_dir else ', and set jobs_dir to it'}; see docs/kubernetes.md."
    )
    yield Check("files of jobs in pods", reason is None, found, "" if reason is None else advice)
    host = settings.cluster_driver_host
    if is_loopback(host) and not is_on_host_network(template):
        found = f"executors do not reach them: {host} is each pod's own loopback address"
        yield Check(
            "drivers", False, found, "Set cluster_driver_host to an address of this host that pods reach."
        )
    else:
        yield Check("drivers", True, f"executors are to reach them at {host}")


def _of_account(
    settings: Settings, api: KubernetesApi, runner: asyncio.Runner, *, is_template_usable: bool
) -> Iterator[Check]:
    from app.cluster.kubernetes.api import ApiError
    from app.cluster.kubernetes.pod_spec import pod_like_executors
    from app.worker.slots.executor_clusters import pod_settings

    namespace = settings.cluster_namespace
    missing = [verb for verb in PERMISSIONS if not runner.run(api.may(verb, "pods"))]
    found = f"may not {', '.join(missing)} pods in {namespace}" if missing else f"may use pods in {namespace}"
    advice = "Bind the account to the role in docs/kubernetes.md." if missing else ""
    yield Check("Kubernetes account", not missing, found, advice)
    if not runner.run(api.may("list", "resourcequotas")):
        advice = "Let the account list resourcequotas; without it slots are offered that quotas forbid."
        yield Check("Kubernetes quotas", True, f"cannot be read in {namespace}", advice)
    if missing or not is_template_usable:
        return
    try:
        runner.run(api.try_pod(pod_like_executors("slotwise-doctor", {}, pod_settings(settings))))
    except ApiError as error:
        advice = "Correct the settings of the cluster or the namespace: executors would not get pods."
        yield Check("Kubernetes pods", False, str(error), advice)
    else:
        found = f"one with {settings.cluster_image} would be let in (a dry run; nothing was made)"
        yield Check("Kubernetes pods", True, found)


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

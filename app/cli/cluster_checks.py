"""The checks of `slotwise doctor` for a cluster.

A Spark standalone cluster: its master is reachable, its workers offer slots, and executors on them could reach the
drivers. Kubernetes: the API answers, accepts the token, and would admit an executor's pod.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from app.cli.doctor import Check
from app.model.addresses import is_loopback, spark_masters, web_pages

if TYPE_CHECKING:
    from app.cluster.kubernetes.api import KubernetesApi
    from app.cluster.standalone.roster import Roster
    from app.settings import Settings


_TIMEOUT_S = 5.0
_ADVICE: Final[dict[int | None, str]] = {
    None: "Check cluster_master, the network, and cluster_ca_file.",
    401: "The token is not accepted: check cluster_token_file.",
    403: "Bind the account to the role in docs/kubernetes.md.",
}
"""By the status that the API answers."""
# What Spark's client does with pods from the drivers, and the server itself.
PERMISSIONS = ("create", "get", "list", "watch", "delete", "deletecollection")


def standalone_checks(settings: Settings) -> Iterator[Check]:
    """One after another; what the workers offer only if the page of the master can be read."""
    assert settings.cluster_master and settings.cluster_webui
    yield _master(spark_masters(settings.cluster_master))
    roster, line = _page(web_pages(settings.cluster_webui), settings.cluster_master)
    yield line
    if roster is not None:
        yield _workers(roster, settings.cluster_executor_memory_mb)
    yield _drivers(settings.cluster_driver_host, roster)


def _master(masters: tuple[tuple[str, int], ...]) -> Check:
    """Of several masters one has to be there; drivers find out which."""
    reasons = []
    for host, port in masters:
        try:
            with socket.create_connection((host, port), _TIMEOUT_S):
                return Check("Spark master", True, f"{host}, port {port}, can be called")
        except OSError as error:
            reasons.append(f"{host}, port {port}: {error.strerror or error}")
    advice = "Check cluster_master, that the master runs, and the network."
    return Check("Spark master", False, f"cannot be called: {'; '.join(reasons)}", advice)


def _page(pages: tuple[str, ...], master: str) -> tuple[Roster | None, Check]:
    """What the master that is alive says of its cluster."""
    import httpx

    from app.cluster.standalone.identity import Match, match, of_another
    from app.cluster.standalone.roster import NotAMaster, read_roster

    name, reasons = "Spark master's page", []
    advice = "Check cluster_webui and the network."
    for page in pages:
        try:
            answer = httpx.get(f"{page}/json/", timeout=_TIMEOUT_S, trust_env=False)
            answer.raise_for_status()
            roster = read_roster(answer.json())
        except httpx.HTTPStatusError as error:
            reasons.append(f"{page} answers {error.response.status_code}")
        except httpx.HTTPError as error:
            reasons.append(f"{page} does not answer: {str(error) or type(error).__name__}")
        except (NotAMaster, ValueError):
            reasons.append(f"{page} is not the page of a Spark master")
            advice = "Give the master's web address as cluster_webui (its own default is port 8080)."
        else:
            found = match(spark_masters(master), roster.url)
            if found is Match.OTHER:
                reasons.append(f"{page}: {of_another(roster.url, master)}")
                advice = (
                    "Give the page of that master as cluster_webui, or that page's master as cluster_master."
                )
                continue
            if roster.is_alive:
                # A page that does not say whose it is says nothing to doubt either.
                doubt = "" if found is Match.SAME or not roster.url else _doubt(roster.url, master)
                return roster, Check(name, True, f"{page} can be read, and the master is alive", doubt)
            reasons.append(f"{page}: the master is {roster.status}")
            advice = (
                "Wait until it is ALIVE. Of several masters, name all pages in cluster_webui, with commas."
            )
    return None, Check(name, False, "; ".join(reasons), advice)


def _doubt(url: str, master: str) -> str:
    return (
        f"The page says that it is of {url}. Make sure that this is another name of cluster_master ({master}): the "
        "page says how many slots there are."
    )


def _workers(roster: Roster, memory_mb: int) -> Check:
    name, slots = "Spark workers", roster.slots(memory_mb)
    total, cores = sum(slots.values()), sum(worker.cores for worker in roster.workers)
    found = f"{len(roster.workers)} with {cores} cores, {total} slots"
    if not roster.workers:
        return Check(name, False, "none", "Start some: without workers there are no slots.")
    short = [worker for worker in roster.workers if slots[worker.id] < worker.cores]
    if not short:
        return Check(name, True, found)
    shown = ", ".join(
        f"{worker.id} has {worker.memory_mb} MB for {slots[worker.id]} of its {worker.cores} cores"
        for worker in short
    )
    advice = f"Give them {memory_mb} MB for each core (cluster_executor_memory_mb), or set that lower."
    return Check(name, total > 0, f"{found}; memory is short: {shown}", advice)


def _drivers(host: str, roster: Roster | None) -> Check:
    """Drivers listen at the address that executors call them at."""
    name, advice = "drivers", "Set cluster_driver_host to an address of this host that the workers reach."
    if not is_here(host):
        return Check(name, False, f"{host} is no address of this host: drivers cannot listen there", advice)
    away = sorted({worker.host for worker in roster.workers if not is_here(worker.host)}) if roster else []
    if is_loopback(host) and away:
        return Check(name, False, f"{host} cannot be reached from {', '.join(away)}", advice)
    return Check(name, True, f"listen at {host}")


def is_here(host: str) -> bool:
    """Whether ``host`` is a name or an address of this machine: one that can be listened at."""
    from app.cluster.standalone.identity import addresses_of, can_listen

    return any(map(can_listen, addresses_of(host)))


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
            yield Check(name, False, str(error), _ADVICE.get(error.status, "Look at the API server."))
        finally:
            runner.run(api.close())


def _of_pods(settings: Settings) -> Iterator[Check]:
    """What can be told of the pods without the API; the first line is about the template."""
    from app.cluster.kubernetes.pod_spec import TemplateError, is_on_host_network, read_template, why_unseen

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

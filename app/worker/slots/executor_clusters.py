"""The cluster of the settings: its interface for the server, and its periodic activities."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import structlog

from app.cluster.kubernetes.api import SERVICE_ACCOUNT_DIR, KubernetesApi
from app.cluster.kubernetes.cluster import KubernetesCluster, java_options
from app.cluster.kubernetes.pod_spec import PodSettings, is_on_host_network, read_template, why_unseen
from app.cluster.ports import ExecutorCluster
from app.cluster.reachability import watch_offers
from app.cluster.standalone.cluster import StandaloneCluster
from app.model.addresses import is_loopback, web_pages
from app.model.clustersettings import KUBERNETES
from app.model.kubenames import api_server
from app.scheduler.adaptive.state import Restarting, RetryingExecutionGraphCreation, WaitingForResources
from app.settings import Settings
from app.worker.control_plane import ControlPlane
from app.worker.refusals import Unavailable, UnknownJob
from app.worker.slots.task_managers import Shown, namespace_of, workers_of

log = structlog.get_logger()


def cluster_of(settings: Settings, now_ms: Callable[[], int], home: str = "server") -> ExecutorCluster | None:
    """The cluster of the settings; None if jobs run on this host. ``home``: the lasting name of this server.

    Raises:
        ApiError: the credentials for Kubernetes cannot be used.
        TemplateError: the template for pods cannot be used.
    """
    if settings.cluster_kind == "embedded":
        return None
    assert settings.cluster_master
    if settings.cluster_kind != KUBERNETES:
        assert settings.cluster_webui
        return StandaloneCluster(
            settings.cluster_master,
            web_pages(settings.cluster_webui),
            executor_memory_mb=settings.cluster_executor_memory_mb,
            driver_host=settings.cluster_driver_host,
            now_ms=now_ms,
        )
    assert settings.cluster_namespace and settings.cluster_slots
    for advice in remarks_on_pods(settings):
        log.warning(advice)
    return KubernetesCluster(
        settings.cluster_master,
        settings.cluster_namespace,
        api_of(settings),
        slots=settings.cluster_slots,
        pods=pod_settings(settings),
        driver_host=settings.cluster_driver_host,
        driver_pod=settings.cluster_driver_pod,
        patience_s=settings.cluster_unschedulable_seconds,
        now_ms=now_ms,
        home=home,
    )


def remarks_on_pods(settings: Settings) -> list[str]:
    """What jobs would fail by, or lose rows, in pods as the settings make them: a sentence for each. Something that is
    not known here may mend it, such as an admission webhook that mounts volumes.

    Raises:
        TemplateError: the template for pods cannot be used.
    """
    template = read_template(settings.cluster_pod_template) if settings.cluster_pod_template else None
    remarks = []
    if (reason := why_unseen(template, settings.place_of_jobs)) is not None:
        name = "jobs_dir" if settings.jobs_dir is not None else "jobs_dir (not set: in the data directory)"
        remarks.append(f"Executors do not see {name}, {settings.place_of_jobs}: {reason}.")
    host = settings.cluster_driver_host
    if is_loopback(host) and not is_on_host_network(template):
        remarks.append(
            f"Executors do not reach the drivers: cluster_driver_host, {host}, is each pod's own loopback."
        )
    return remarks


def api_of(settings: Settings) -> KubernetesApi:
    """
    Raises:
        ApiError: the credentials cannot be used.
    """
    assert settings.cluster_master and settings.cluster_namespace
    token_file, ca_file = _credentials(settings)
    return KubernetesApi(
        api_server(settings.cluster_master),
        settings.cluster_namespace,
        token_file=token_file,
        ca_file=ca_file,
    )


def pod_settings(settings: Settings) -> PodSettings:
    assert settings.cluster_image
    return PodSettings(
        image=settings.cluster_image,
        service_account=settings.cluster_service_account,
        memory_mb=settings.cluster_executor_memory_mb,
        overhead_mb=settings.cluster_executor_overhead_mb,
        cpu=settings.cluster_executor_cpu,
        cpu_limit=settings.cluster_executor_cpu_limit,
        template=settings.cluster_pod_template,
    )


def driver_java_options(settings: Settings) -> str:
    """Options of the JVM of each driver: those of the settings come last, so they win."""
    if settings.cluster_kind != KUBERNETES:
        return settings.driver_java_options
    return f"{shlex.join(java_options(*_credentials(settings)))} {settings.driver_java_options}"


def shown_of(cluster: ExecutorCluster | None) -> Shown | None:
    """The TaskManagers of a cluster; None for those of this host."""
    match cluster:
        case KubernetesCluster():
            return namespace_of(cluster)
        case StandaloneCluster():
            return workers_of(cluster)
        case _:
            return None


def beside_jobs(
    cluster: ExecutorCluster | None, control_plane: ControlPlane
) -> list[Coroutine[Any, Any, None]]:
    """What is to go on as long as the server runs."""
    if cluster is None:
        return []
    tasks = [watch_offers(cluster, control_plane.knows, control_plane.take_offer)]
    if isinstance(cluster, KubernetesCluster):
        tasks.append(cluster.tidy(lambda job_id: _is_over(control_plane, job_id)))
        tasks.append(cluster.ask_for_room(lambda: _is_waited_for(control_plane)))
    return tasks


def _is_over(control_plane: ControlPlane, job_id: str) -> bool:
    """Whether the job belongs to this server and has ended. Unknown jobs may belong to other servers."""
    unreadable = {job.job_id: job.status for job in control_plane.unreadable_jobs()}
    try:
        status = unreadable.get(job_id) or control_plane.job(job_id).status
        return status.is_globally_terminal
    except (UnknownJob, Unavailable):
        return False


def _is_waited_for(control_plane: ControlPlane) -> bool:
    """Whether a job waits for slots that it cannot do without."""
    return any(
        isinstance(view.state.phase, WaitingForResources | RetryingExecutionGraphCreation | Restarting)
        and view.state.usable_slots < view.state.supply.minimal
        for view in control_plane.jobs()
    )


def _credentials(settings: Settings) -> tuple[Path | None, Path | None]:
    """The files of the token and of the authority: those of the settings, or those that a pod has by itself."""
    own = SERVICE_ACCOUNT_DIR
    token = settings.cluster_token_file or (own / "token" if (own / "token").exists() else None)
    ca = settings.cluster_ca_file or (own / "ca.crt" if (own / "ca.crt").exists() else None)
    return token, ca

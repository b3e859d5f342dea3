"""Rules for the settings of a cluster. Each check raises ValueError with a sentence that names a setting."""

from __future__ import annotations

from collections.abc import Mapping

from app.model.addresses import SPARK_PREFIX, is_host, is_loopback, spark_masters, web_pages
from app.model.kubenames import MASTER_PREFIX, api_server, is_label, is_subdomain, parse_quantity
from app.model.resultsurl import is_local

EMBEDDED, STANDALONE, KUBERNETES = "embedded", "spark-standalone", "kubernetes"

# What the kinds of clusters cannot do without, and how it begins.
NEEDED = {
    STANDALONE: {"cluster_master": SPARK_PREFIX, "cluster_webui": "http"},
    KUBERNETES: {
        "cluster_master": MASTER_PREFIX,
        "cluster_namespace": "",
        "cluster_image": "",
        "cluster_slots": "",
    },
}
WHOSE_SLOTS = {
    STANDALONE: "the workers of the cluster offer the slots",
    KUBERNETES: "cluster_slots says how many",
}
_OF_ALL_CLUSTERS = ("cluster_master", "cluster_driver_host", "cluster_executor_memory_mb")


def kinds_of(name: str) -> tuple[str, ...]:
    """The kinds of clusters that a setting is for."""
    if name == "run_drivers_as":
        return (EMBEDDED,)
    if not name.startswith("cluster_"):
        return (EMBEDDED, STANDALONE, KUBERNETES)
    if name in _OF_ALL_CLUSTERS:
        return (STANDALONE, KUBERNETES)
    return (STANDALONE,) if name == "cluster_webui" else (KUBERNETES,)


def kind_of_master(master: str) -> str:
    """The kind of the cluster that has this master."""
    return KUBERNETES if master.startswith(MASTER_PREFIX) else STANDALONE


def check_driver_host(value: str) -> None:
    """Executors get this address unchanged."""
    if not is_host(value):
        raise ValueError(
            f"cluster_driver_host: should be a name or an address of this host, without a port (found {value!r})."
        )


def check_results_apart(results_url: str | None) -> None:
    """Of drivers that run as another user."""
    if results_url is not None and is_local(results_url):
        raise ValueError(
            "results_url: with run_drivers_as results lie among the files of jobs, or in a Hadoop file system. "
            "Leave it out."
        )


def check_standalone(*, master: str, webui: str, driver_host_given: bool) -> None:
    """Of a Spark standalone cluster."""
    name = "cluster_master"
    try:
        masters = spark_masters(master)
        name = "cluster_webui"
        pages = web_pages(webui)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if len(pages) != len(masters):
        raise ValueError(
            f"cluster_webui: each master has a web page of its own, and there are {len(masters)} in cluster_master, "
            f"{len(pages)} here."
        )
    beyond = [host for host, _ in masters if not is_loopback(host)]
    if beyond and not driver_host_given:
        raise ValueError(
            f"cluster_driver_host: is needed with a Spark master that is not on loopback ({', '.join(beyond)}): the "
            "address of this host under which executors reach the drivers."
        )


def check_kubernetes(
    *,
    master: str,
    namespace: str,
    names: Mapping[str, str | None],
    driver_host_given: bool,
    cpu: str,
    cpu_limit: str | None,
) -> None:
    """Of Kubernetes. ``names``: the settings that are names of pods or accounts."""
    try:
        api_server(master)
    except ValueError as error:
        raise ValueError(f"cluster_master: {error}") from None
    if not is_label(namespace):
        raise ValueError(
            f"cluster_namespace: {namespace!r} is not the name of a namespace: lower case letters, digits and hyphens, "
            "at most 63."
        )
    for name, value in names.items():
        if value is not None and not is_subdomain(value):
            raise ValueError(
                f"{name}: {value!r} is not a name of Kubernetes: lower case letters, digits, hyphens and dots."
            )
    if not driver_host_given:
        raise ValueError(
            "cluster_driver_host: is needed with cluster_kind kubernetes: the address of this host under which pods "
            "reach the drivers."
        )
    if cpu_limit is not None and parse_quantity(cpu_limit) < parse_quantity(cpu):
        raise ValueError(f"cluster_executor_cpu_limit: {cpu_limit} is less than cluster_executor_cpu, {cpu}.")

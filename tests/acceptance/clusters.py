"""A server with a standalone cluster of its own, perhaps of another Spark than the server's; jobs for executors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app.cluster.java import usable_java
from app.cluster.runtimes import OWN, Kind
from app.cluster.standalone.daemons import DevCluster
from tests.acceptance.deployment import Deployment, deployed
from tests.environments import QUICK_JAVA


@contextmanager
def on_cluster(directory: Path, kind: Kind = OWN) -> Iterator[tuple[Deployment, DevCluster]]:
    """Two workers of two cores, with the Spark of ``kind``."""
    home = None if kind.environment is None else Path(kind.environment.spark_home)
    cluster = DevCluster(directory / "cluster", java=usable_java(), home=home)
    try:
        cluster.up()
        for _ in range(2):
            cluster.add(cores=2, memory_mb=1024)
        with deployed(directory, cluster=cluster) as deployment:
            deployment.start(with_points=False)
            yield deployment, cluster
    finally:
        cluster.down()


def on_executors(document: dict[str, Any]) -> dict[str, Any]:
    """With executors that start in little time and that go at once when they are given up. Few batches
    run meanwhile: much of the time a test waits for executors, or for their end to be noticed."""
    config = {
        "slot.idle.timeout": "100 ms",
        "spark.executor.extraJavaOptions": QUICK_JAVA,
        "slotwise.batch.interval": "2 s",
    }
    return {**document, "config": {**document["config"], **config}}

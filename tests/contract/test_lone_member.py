"""A server that no other one can share its jobs with: what it says of itself, and why it is alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.app import create_app
from app.cluster.periodic import Periodic
from app.main import _info
from app.settings import load_settings
from tests.contract.world import World

STANDALONE = {
    "cluster_kind": "spark-standalone",
    "cluster_master": "spark://127.0.0.1:7077",
    "cluster_webui": "http://127.0.0.1:8080",
}
KUBERNETES = {
    "cluster_kind": "kubernetes",
    "cluster_master": "k8s://https://api:6443",
    "cluster_namespace": "jobs",
    "cluster_image": "image",
    "cluster_slots": 8,
    "cluster_driver_host": "10.0.0.5",
}


class SomeCluster:
    """What is asked of a cluster here: whether it can be asked."""

    def __init__(self, unreachable: str = "") -> None:
        self.unreachable = unreachable
        self.periodic = Periodic()


@pytest.mark.parametrize(
    ("settings", "slots", "cluster", "words"),
    [
        ({"slots": 3}, 3, None, "takes a PostgreSQL database"),
        (STANDALONE, 0, "spark://127.0.0.1:7077", "takes a PostgreSQL database"),
        (
            {**KUBERNETES, "database_url": "postgresql+psycopg://me@db/jobs"},
            0,
            "k8s://https://api:6443",
            "offers the slots of a namespace of Kubernetes",
        ),
    ],
)
async def test_a_lone_server(
    world: World, tmp_path: Path, settings: dict[str, Any], slots: int, cluster: str | None, words: str
) -> None:
    loaded = load_settings(data_dir=tmp_path, **settings)
    spark: Any = SomeCluster() if cluster else None
    app = create_app(world.control_plane, info=_info(loaded, "http://127.0.0.1:8081", spark))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
        answer = (await http.get("/cluster/members")).json()
    (member,) = answer["members"]
    assert (answer["shared"], member["slots"], member["cluster"]) == (False, slots, cluster)
    assert words in answer["alone"]


async def test_a_cluster_that_cannot_be_asked_is_told_by_readiness(world: World, tmp_path: Path) -> None:
    since = "The Spark master cannot be asked since 2026-11-23 03:02:00 UTC (refused)."
    loaded = load_settings(data_dir=tmp_path, **STANDALONE)
    for away in (since, ""):
        spark: Any = SomeCluster(away)
        app = create_app(world.control_plane, info=_info(loaded, "http://127.0.0.1:8081", spark))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
            answer = await http.get("/health/ready")
        assert (answer.status_code, answer.json()["warnings"]) == (200, [away] if away else [])

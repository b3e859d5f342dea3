"""A defect in one look at a cluster: it is logged, told, and the looking goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.cluster.kubernetes.api import KubernetesApi
from app.cluster.kubernetes.cluster import KubernetesCluster, PodSettings
from app.cluster.periodic import Periodic
from app.cluster.ports import Offer
from app.cluster.reachability import watch_offers
from app.cluster.standalone.cluster import StandaloneCluster


class Stop(BaseException):
    """Ends what goes on for ever."""


class Sleeps:
    """In place of the clock: notes each pause, and ends after so many."""

    def __init__(self, most: int) -> None:
        self.seconds: list[float] = []
        self._most = most

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        if len(self.seconds) == self._most:
            raise Stop


def standalone() -> Any:
    return StandaloneCluster(
        "spark://m:1", ["http://m:1"], executor_memory_mb=512, driver_host="127.0.0.1", now_ms=lambda: 0
    )


def kubernetes() -> Any:
    return KubernetesCluster(
        "k8s://http://api",
        "jobs",
        KubernetesApi("http://api", "jobs"),
        slots=4,
        pods=PodSettings("image"),
        driver_host="127.0.0.1",
        patience_s=60,
        now_ms=lambda: 0,
    )


def test_pauses_grow_up_to_a_limit_and_are_short_again_when_all_is_well() -> None:
    sleeps = Sleeps(12)
    periodic, looks = Periodic(sleeps), 0

    async def once() -> None:
        nonlocal looks
        looks += 1
        assert periodic.troubles == ([] if looks in (1, 2, 12) else [periodic.troubles[0]])
        if 2 <= looks <= 10:
            raise KeyError("a defect")

    with pytest.raises(Stop), capture_logs() as logs:
        asyncio.run(periodic.run("looks", once, every_s=0.5))
    assert sleeps.seconds == [0.5, 1, 2, 4, 8, 16, 30, 30, 30, 30, 0.5, 0.5]
    assert periodic.troubles == []
    assert [(entry["log_level"], entry.get("exc_info")) for entry in logs][:1] == [("error", True)]
    assert len(logs) == 10 and logs[-1]["event"].endswith("works again")


@pytest.mark.parametrize("cluster", [standalone, kubernetes])
def test_a_watch_outlives_a_defect_and_tells_what_it_missed(cluster: Callable[[], Any]) -> None:
    made = cluster()
    offered: list[Offer] = []
    sleeps = Sleeps(4)
    made.periodic = Periodic(sleeps)
    answers = iter([Offer((("w", 1),)), KeyError("a defect"), Offer((("w", 2),)), Offer((("w", 2),))])

    async def look(_is_ours: Any) -> Offer:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def watch() -> None:
        made.look = look
        try:
            await watch_offers(made, lambda _job: True, offered.append)
        finally:
            await made.close()

    with pytest.raises(Stop):
        asyncio.run(watch())
    assert offered == [Offer((("w", 1),)), Offer((("w", 2),))]


def test_an_offer_that_was_not_taken_is_made_again() -> None:
    made = standalone()
    offered: list[Offer] = []
    made.periodic = Periodic(Sleeps(3))

    async def look(_is_ours: Any) -> Offer:
        return Offer((("w", 1),))

    def take(offer: Offer) -> None:
        offered.append(offer)
        if len(offered) == 1:
            raise KeyError("a defect of the taker")

    async def watch() -> None:
        made.look = look
        try:
            await watch_offers(made, lambda _job: True, take)
        finally:
            await made.close()

    with pytest.raises(Stop):
        asyncio.run(watch())
    assert len(offered) == 2


def test_tidying_outlives_a_defect() -> None:
    made, asked = kubernetes(), []
    made.periodic = Periodic(Sleeps(3))

    def is_over(job_id: str) -> bool:
        asked.append(job_id)
        raise KeyError("a defect")

    class OnePod:
        job_id, ending = "job", False

    async def tidy() -> None:
        made._pods = (OnePod(),)
        try:
            await made.tidy(is_over)
        finally:
            await made.close()

    with pytest.raises(Stop):
        asyncio.run(tidy())
    assert asked == ["job"] * 3
    assert ["deletes the pods" in trouble for trouble in made.periodic.troubles] == [True]

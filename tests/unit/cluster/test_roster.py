"""What the page of a Spark master says, and what follows for the slots."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from app.cluster.ports import Offer
from app.cluster.slot_pool import SlotPool
from app.cluster.standalone.cluster import StandaloneCluster
from app.cluster.standalone.roster import NotAMaster, application_name, job_of, read_roster
from app.model.plan import Slot
from app.scheduler.adaptive.slot_declaration import Releasable

JOB = "0123456789abcdef0123456789abcdef"


def worker(number: int, *, cores: int = 2, memory: int = 4096, state: str = "ALIVE") -> dict[str, Any]:
    return {
        "id": f"worker-{number}",
        "host": "127.0.0.1",
        "port": 7000 + number,
        "webuiaddress": f"http://127.0.0.1:{8000 + number}",
        "cores": cores,
        "coresused": 0,
        "memory": memory,
        "memoryused": 0,
        "state": state,
    }


def page(*workers: dict[str, Any], status: str = "ALIVE", applications: dict[str, int] | None = None) -> Any:
    active = [
        {"id": f"app-{number}", "name": name, "cores": cores}
        for number, (name, cores) in enumerate((applications or {}).items())
    ]
    return {"workers": list(workers), "activeapps": active, "status": status}


def test_only_workers_that_are_alive_offer_slots() -> None:
    states = ("ALIVE", "DEAD", "DECOMMISSIONED", "UNKNOWN")
    roster = read_roster(page(*(worker(n, state=state) for n, state in enumerate(states))))
    assert roster.slots(512) == {"worker-0": 2}


@pytest.mark.parametrize(
    ("cores", "memory", "slots"), [(4, 4096, 4), (4, 1100, 2), (4, 511, 0), (1, 9999, 1)]
)
def test_a_slot_needs_a_core_and_memory_for_an_executor(cores: int, memory: int, slots: int) -> None:
    assert read_roster(page(worker(1, cores=cores, memory=memory))).slots(512) == {"worker-1": slots}


def test_cores_of_others_are_withheld_and_our_own_are_not() -> None:
    ours = application_name("a [job]", JOB, 2)
    # That of a server of an older version, too.
    assert job_of(ours) == job_of(f"a [job] [slotwise job {JOB}]") == JOB
    roster = read_roster(page(worker(1), applications={ours: 2, "somebody": 3, f"[slotwise job {JOB}] x": 4}))
    assert roster.withheld(lambda job_id: job_id == JOB, 512) == (7, 0)
    assert roster.withheld(lambda job_id: False, 512) == (9, 0)


def test_memory_of_others_is_withheld_too() -> None:
    ours = application_name("a [job]", JOB, 2)
    # Somebody has one core and much of the memory, a job of ours an executor. One more fits on two cores that are free.
    used = {**worker(1, cores=4), "coresused": 2, "memoryused": 3500 + 512}
    roster = read_roster(page({**used, "memory": 4600}, applications={ours: 1, "somebody": 1}))
    assert roster.slots(512) == {"worker-1": 4}
    assert roster.withheld(lambda job_id: job_id == JOB, 512) == (1, 1)
    # Where nobody else is, what is not free is ours, whatever the page says of it.
    assert read_roster(page(used, applications={ours: 2})).withheld(bool, 512) == (0, 0)


@pytest.mark.parametrize("document", [None, [], {}, {"workers": []}, {"workers": [{}], "activeapps": []}])
def test_another_page_is_not_a_masters(document: Any) -> None:
    with pytest.raises(NotAMaster):
        read_roster(document)


# ---- looking at a master


class World:
    """A master that answers with ``page``, or not at all if that is None; at its own time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.page: Any = page(worker(1), worker(2))
        self.now = 100.0
        self.cluster: Any = None
        monkeypatch.setattr("app.cluster.standalone.cluster.time.monotonic", lambda: self.now)

    def answer(self, request: httpx.Request) -> httpx.Response:
        if self.page is None:
            raise httpx.ConnectError("refused")
        return httpx.Response(200, json=self.page)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def looked(world: World, *changes: Callable[[], None]) -> list[Offer]:
    """What is offered at first and after each change."""

    async def run() -> list[Offer]:
        cluster = StandaloneCluster(
            "spark://m:1",
            ["http://other:1", "http://m:1"],
            executor_memory_mb=512,
            driver_host="127.0.0.1",
            now_ms=lambda: int(world.now * 1000),
        )
        world.cluster = cluster
        await cluster.close()
        cluster._http = httpx.AsyncClient(transport=httpx.MockTransport(world.answer))
        offers = [await cluster.look(bool)]
        for change in changes:
            change()
            offers.append(await cluster.look(bool))
        await cluster.close()
        return offers

    return asyncio.run(run())


def show(world: World, document: Any, after_s: float = 1.0) -> Callable[[], None]:
    def change() -> None:
        world.page = document
        world.now += after_s

    return change


BOTH = (("worker-1", 2), ("worker-2", 2))


def test_workers_come_and_go(world: World) -> None:
    offers = looked(world, show(world, page(worker(2))), show(world, page(worker(2), worker(3, cores=1))))
    assert [one.task_managers for one in offers] == [BOTH, BOTH[1:], (*BOTH[1:], ("worker-3", 1))]


def test_a_master_that_is_away_or_recovers_suspends_and_keeps_what_was_known(world: World) -> None:
    recovering = page(worker(1, state="UNKNOWN"), status="RECOVERING")
    offers = looked(
        world, show(world, None), show(world, recovering), show(world, page(worker(1), worker(2)))
    )
    assert [(one.task_managers, one.unreachable) for one in offers] == [
        (BOTH, False),
        (BOTH, True),
        (BOTH, True),
        (BOTH, False),
    ]


def test_workers_have_a_while_to_find_a_master_that_was_away(world: World) -> None:
    first, second = page(worker(1)), page({**worker(2), "id": "again"}, worker(1))
    offers = looked(world, show(world, None), show(world, first), show(world, first, 21.0))
    assert [one.task_managers for one in offers[2:]] == [(BOTH[1], BOTH[0]), BOTH[:1]] or [
        sorted(one.task_managers) for one in offers[2:]
    ] == [list(BOTH), [BOTH[0]]]
    # One that has come again under another id is not kept twice.
    world.page = page(worker(1), worker(2))
    offers = looked(world, show(world, None), show(world, second))
    assert sorted(offers[-1].task_managers) == [("again", 2), ("worker-1", 2)]


def test_a_worker_with_too_little_memory_is_told_once(world: World) -> None:
    world.page = page(worker(1, memory=511), worker(2, memory=600), worker(3))
    with capture_logs() as logs:
        offers = looked(world, show(world, world.page))
    assert dict(offers[-1].task_managers) == {"worker-1": 0, "worker-2": 1, "worker-3": 2}
    told = {entry["worker"]: entry["slots"] for entry in logs if entry["log_level"] == "warning"}
    assert told == {"worker-1": 0, "worker-2": 1}
    assert len([entry for entry in logs if entry["log_level"] == "warning"]) == 2


def test_an_offer_says_why_there_is_no_more(world: World) -> None:
    small = page(worker(1), {**worker(2), "memory": 700}, applications={"somebody": 3})
    offers = looked(
        world,
        show(world, small),
        show(world, None),
        show(world, None),
        show(world, page(worker(1), worker(2))),
    )
    assert [one.why for one in offers] == [
        (),
        (
            "Worker worker-2 offers 1 of its 2 core(s): it has 700 MB for executors, and each takes 512 MB "
            "(cluster_executor_memory_mb).",
            "3 core(s) are in the hands of applications that are not jobs of this server.",
        ),
        (
            "The Spark master cannot be asked since 1970-01-01 00:01:42 UTC "
            "(http://other:1: refused; http://m:1: refused).",
        ),
        (
            "The Spark master cannot be asked since 1970-01-01 00:01:42 UTC "
            "(http://other:1: refused; http://m:1: refused).",
        ),
        (),
    ]
    assert world.cluster.unreachable == ""
    offers = looked(world, show(world, None))
    assert (world.cluster.unreachable,) == offers[-1].why


# ---- what the pool makes of it


def running(pool: SlotPool, job: str, desired: int) -> None:
    pool.declare(job, desired, 1)
    pool.review(0)
    pool.note_releasable(job, Releasable(running=True))


def test_while_the_master_is_away_jobs_keep_their_slots_are_told_and_get_no_others() -> None:
    pool = SlotPool({"w": 6})
    running(pool, "runs", 2)
    pool.declare("starts", 2, 2)
    pool.review(0)
    pool.take_offer(Offer((("w", 6),), unreachable=True, why=("away",)))
    assert pool.review(1) == {"runs", "starts"}
    assert (len(pool.held_by("runs")), len(pool.held_by("starts"))) == (2, 2)
    assert (pool.free, pool.free_on("w"), pool.idle, pool.cluster_unreachable) == (0, 0, 2, True)
    assert pool.why == ("away",)
    pool.declare("comes", 1, 1)
    assert pool.review(2) == {"comes"}, "it learns that there is nothing to wait for yet"
    pool.note_releasable("runs", Releasable(running=False))
    assert (pool.review(3), len(pool.held_by("runs"))) == (set(), 2)
    assert (pool.attainable_slots("runs", 6, 1), pool.attainable_slots("comes", 1, 1)) == (2, 0)
    pool.take_offer(Offer((("w", 6),)))
    assert pool.review(4) == {"runs", "starts", "comes"}
    assert (len(pool.held_by("comes")), pool.free, pool.why) == (1, 1, ())


def test_a_server_that_starts_while_the_master_is_away_believes_its_jobs() -> None:
    pool = SlotPool({})
    pool.take_offer(Offer((), unreachable=True))
    slots = [Slot("w-0", "w"), Slot("w-1", "w")]
    pool.note_releasable("a", Releasable(running=True))
    assert pool.restore("a", slots, 2, 1)
    assert pool.held_by("a") == tuple(slots)
    pool.take_offer(Offer((("w", 1),)))
    pool.review(0)
    assert pool.held_by("a") == (slots[0],)


def test_what_others_use_is_not_given_out() -> None:
    pool = SlotPool({})
    pool.take_offer(Offer((("w", 4),), withheld=3))
    assert (pool.total, pool.free) == (1, 1)
    running(pool, "a", 4)
    assert len(pool.held_by("a")) == 1
    pool.take_offer(Offer((("w", 4),), withheld=1))
    pool.review(0)
    assert (len(pool.held_by("a")), pool.free) == (3, 0)
    # Somebody was quicker: what runs is not stopped for it.
    pool.take_offer(Offer((("w", 4),), withheld=3))
    assert (pool.review(0), len(pool.held_by("a"))) == (set(), 3)


def test_the_page_of_another_master_offers_nothing(world: World) -> None:
    theirs, ours = {**page(worker(3)), "url": "spark://m:2"}, {**page(worker(1)), "url": "spark://m:1"}
    with capture_logs() as logs:
        offers = looked(
            world, show(world, theirs), show(world, theirs), show(world, ours), show(world, ours, 21.0)
        )
    assert [(one.task_managers, one.unreachable) for one in offers] == [
        (BOTH, False),
        (BOTH, True),
        (BOTH, True),
        (BOTH, False),
        (BOTH[:1], False),
    ]
    (why,) = offers[1].why
    assert (
        "http://m:1: it is the page of the master spark://m:2, which is none of cluster_master (spark://m:1)"
        in why
    )
    said = [entry["event"] for entry in logs if entry["log_level"] == "error"]
    assert said == [
        "cluster_webui is the page of another master than cluster_master: its workers are not used"
    ]


def test_a_page_whose_master_may_be_the_one_counts(world: World) -> None:
    world.page = {**page(worker(1)), "url": "spark://3f2a9c.invalid:1"}
    with capture_logs() as logs:
        offers = looked(world, show(world, world.page), show(world, world.page, 61.0))
    assert [(one.task_managers, one.unreachable, one.why) for one in offers] == [(BOTH[:1], False, ())] * 3
    assert [entry["event"][:25] for entry in logs if entry["log_level"] == "warning"] == [
        "whether cluster_webui is "
    ]


def test_the_master_that_answered_last_is_asked_first(world: World) -> None:
    asked: list[str] = []
    alive = {"other"}

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        if request.url.host not in alive:
            raise httpx.ConnectTimeout("a host that is down")
        return httpx.Response(200, json=world.page)

    def fail_over() -> None:
        alive.clear()
        alive.add("m")

    world.answer = answer  # type: ignore[method-assign]
    looked(world, fail_over, lambda: None)
    assert asked == ["other", "other", "m", "m"]

"""How executors are asked for and taken in, without Spark: they come when the test says so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from app.driver import executors as module
from app.driver.executors import Executors

WAIT_S = 10.0


class Summaries(list[Any]):
    def size(self) -> int:
        return len(self)

    def apply(self, position: int) -> Any:
        return self[position]


class JavaList:
    def __init__(self) -> None:
        self.found: list[str] = []

    def add(self, value: str) -> None:
        self.found.append(value)


class Scheduler:
    """What a SparkContext says and is asked. ``hosts``: of each executor, by its number."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.hosts: dict[int, str] = {}
        self.warming: dict[int, threading.Event] = {}
        self.let_in: dict[int, threading.Event] = {}
        self.made: list[Executors] = []
        self.killed: list[str] = []
        empty = SimpleNamespace(**{"Map$": SimpleNamespace(MODULE=None)})
        setattr(getattr(empty, "Map$"), "MODULE$", SimpleNamespace(empty=dict))
        converters = SimpleNamespace(
            asJava=list, asScala=lambda values: SimpleNamespace(toSeq=lambda: list(values.found))
        )
        self._jvm = SimpleNamespace(
            scala=SimpleNamespace(
                collection=SimpleNamespace(immutable=empty),
                jdk=SimpleNamespace(javaapi=SimpleNamespace(CollectionConverters=converters)),
            ),
            java=SimpleNamespace(util=SimpleNamespace(ArrayList=JavaList)),
        )
        self._jsc = SimpleNamespace(sc=lambda: self)

    def requestTotalExecutors(self, count: int, _tasks: int, _places: Any) -> None:
        self.asked.append(count)

    def schedulerBackend(self) -> Any:
        return SimpleNamespace(
            getExecutorIds=self._ids,
            isExecutorActive=lambda number: int(number) in self.hosts,
            killExecutors=lambda numbers, *_how: self.killed.extend(numbers),
        )

    def statusStore(self) -> Any:
        def executors(_active: bool) -> Summaries:
            found = [SimpleNamespace(id=lambda: "driver", hostPort=lambda: "driver:1")]
            for host in self.hosts.values():
                found.append(
                    SimpleNamespace(id=lambda: "1", hostPort=lambda host=host: f"{host}:1" if host else "")
                )
            return Summaries(found)

        return SimpleNamespace(executorList=executors)

    def _ids(self) -> Any:
        return Summaries(str(number) for number in self.hosts)

    def warm_up(self, number: int, let_in: threading.Event) -> None:
        done = self.warming.setdefault(number, threading.Event())
        self.let_in[number] = let_in
        assert done.wait(WAIT_S)

    def becomes_ready(self, number: int) -> None:
        until(lambda: number in self.warming)
        self.warming[number].set()


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scheduler]:
    monkeypatch.setattr(module, "_LOOK_CLOSELY_S", 0.01)
    found = Scheduler()
    found.hosts = {0: "a", 1: "a"}
    yield found
    for each in found.made:
        each.close()
    for done in found.warming.values():
        done.set()
    # What has ended asks nothing of a test that comes later.
    until(lambda: all(each._newcomers is None for each in found.made))


def executors_of(scheduler: Scheduler, count: int, warm_up: Any = None) -> Executors:
    context: Any = scheduler
    found = Executors(context, count, warm_up or scheduler.warm_up)
    scheduler.made.append(found)
    found.await_first()
    return found


def running_with_two(scheduler: Scheduler) -> Executors:
    found = executors_of(scheduler, 2)
    assert (found.ready, scheduler.asked) == (2, [2])
    return found


def test_on_one_host_they_come_one_after_another(scheduler: Scheduler) -> None:
    executors = running_with_two(scheduler)
    executors.request(5)
    until(lambda: scheduler.asked == [2, 3])
    scheduler.hosts[2] = "a"
    until(lambda: 2 in scheduler.warming)
    assert (executors.present, executors.ready, scheduler.asked) == (3, 2, [2, 3]), (
        "asked before the third is ready"
    )
    scheduler.becomes_ready(2)
    until(lambda: executors.ready == 3)
    assert not scheduler.let_in[2].is_set(), "it has tasks of the query before the plan is taken up"
    assert executors.at_work() == [0, 1]
    executors.let_in_ready()
    assert scheduler.let_in[2].is_set()
    assert executors.at_work() == [0, 1, 2]
    assert scheduler.asked == [2, 3], "the first batch with the third is not disturbed"
    executors.settled()
    until(lambda: scheduler.asked == [2, 3, 4])
    scheduler.hosts[3] = "a"
    scheduler.becomes_ready(3)
    until(lambda: executors.ready == 4)
    assert not scheduler.let_in[3].is_set(), "it came after the step"
    executors.let_in_ready()
    executors.settled()
    until(lambda: scheduler.asked == [2, 3, 4, 5])
    scheduler.hosts[4] = "a"
    scheduler.becomes_ready(4)
    until(lambda: executors.ready == 5)
    executors.let_in_all()
    assert all(one.is_set() for one in scheduler.let_in.values())


def test_on_several_hosts_as_many_start_at_a_time(scheduler: Scheduler) -> None:
    scheduler.hosts = {0: "a", 1: "b"}
    running_with_two(scheduler).request(5)
    until(lambda: scheduler.asked == [2, 4])


def test_one_that_has_not_said_where_it_is_is_no_other_host(scheduler: Scheduler) -> None:
    scheduler.hosts = {0: "a", 1: ""}
    running_with_two(scheduler).request(5)
    until(lambda: scheduler.asked == [2, 3])


def test_half_as_many_as_there_are_start_at_a_time(scheduler: Scheduler) -> None:
    scheduler.hosts = dict.fromkeys(range(8), "a")
    executors = executors_of(scheduler, 8)
    executors.request(20)
    until(lambda: scheduler.asked == [8, 12])


def test_fewer_are_asked_for_at_once_and_nobody_waits_for_more(scheduler: Scheduler) -> None:
    executors = running_with_two(scheduler)
    executors.request(5)
    until(lambda: scheduler.asked == [2, 3])
    executors.request(2)
    assert scheduler.asked == [2, 3, 2]
    assert executors.ready >= executors.wanted


def test_an_attempt_that_is_over_holds_nobody_and_asks_for_nobody(scheduler: Scheduler) -> None:
    executors = running_with_two(scheduler)
    executors.request(5)
    scheduler.hosts[2] = "a"
    until(lambda: 2 in scheduler.warming)
    executors.close()
    assert scheduler.let_in[2].is_set()
    scheduler.becomes_ready(2)
    until(lambda: executors.ready == 3)
    until(lambda: executors._newcomers is None)
    assert scheduler.asked == [2, 3]


def test_one_that_dies_again_and_again_is_no_progress(scheduler: Scheduler) -> None:
    executors = running_with_two(scheduler)
    executors.request(3)
    executors._moved_at -= 100
    scheduler.hosts[2] = "a"
    until(lambda: 2 in scheduler.warming)
    del scheduler.hosts[2]
    scheduler.becomes_ready(2)
    until(lambda: not executors._warming)
    assert executors.stalled_s > 99


def test_a_warm_up_that_fails_costs_speed_only(scheduler: Scheduler) -> None:
    def fails(_number: int, _let_in: threading.Event) -> None:
        raise OSError("no such directory")

    executors = executors_of(scheduler, 2, fails)
    executors.request(3)
    scheduler.hosts[2] = "a"
    until(lambda: executors.ready == 3)


def test_the_replacement_of_a_lost_one_may_work_as_soon_as_it_is_warm(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHECK_EVERY_S", 0.0)
    executors = running_with_two(scheduler)
    scheduler.hosts = {0: "a", 7: "a"}
    executors.check()
    scheduler.becomes_ready(7)
    until(lambda: executors.ready == 2)
    assert scheduler.let_in[7].is_set()
    assert scheduler.asked == [2], "the cluster's manager replaces what it has lost by itself"


def test_one_that_does_not_get_warm_is_replaced(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WARM_UP_S", 0.05)
    executors = running_with_two(scheduler)
    executors.request(3)
    scheduler.hosts[2] = "a"
    until(lambda: scheduler.killed)
    assert set(scheduler.killed) == {"2"}
    del scheduler.hosts[2]
    scheduler.hosts[3] = "a"
    scheduler.becomes_ready(3)
    until(lambda: executors.ready == 3)
    until(lambda: executors._newcomers is None)
    assert 2 in executors._warming, "its thread may hang for ever, and nobody waits for it"

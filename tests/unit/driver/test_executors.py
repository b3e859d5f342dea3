"""How executors are asked for and taken in, without Spark: they come when the test says so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from app.driver import executor_requests
from app.driver import executors as module
from app.driver.executors import Executors
from app.driver.failures import DriverError

WAIT_S = 60.0


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
        self.away = False
        self.knows_executors = True
        self.given_up: set[int] = set()
        empty = SimpleNamespace(**{"Map$": SimpleNamespace(MODULE=None)})
        setattr(getattr(empty, "Map$"), "MODULE$", SimpleNamespace(empty=dict))
        converters = SimpleNamespace(
            asJava=list, asScala=lambda values: SimpleNamespace(toSeq=lambda: list(values.found))
        )
        duration = SimpleNamespace()
        setattr(duration, "Duration$", SimpleNamespace())
        setattr(getattr(duration, "Duration$"), "MODULE$", SimpleNamespace(Inf=lambda: None))
        self._jvm = SimpleNamespace(
            scala=SimpleNamespace(
                collection=SimpleNamespace(immutable=empty),
                jdk=SimpleNamespace(javaapi=SimpleNamespace(CollectionConverters=converters)),
                concurrent=SimpleNamespace(
                    duration=duration, Await=SimpleNamespace(result=lambda done, _most: done)
                ),
            ),
            java=SimpleNamespace(util=SimpleNamespace(ArrayList=JavaList)),
        )
        self._jsc = SimpleNamespace(sc=lambda: self)

    def requestTotalExecutors(self, count: int, _tasks: int, _places: Any) -> bool:
        if self.away:
            raise OSError("connection refused")
        self.asked.append(count)
        return True

    def schedulerBackend(self) -> Any:
        return SimpleNamespace(
            getExecutorIds=self._ids,
            isExecutorActive=lambda number: int(number) in self.hosts.keys() - self.given_up,
            killExecutors=self._kill,
            doKillExecutors=self._kill_again,
        )

    def _kill(self, numbers: list[str], *_how: Any) -> None:
        if self.away:
            raise OSError("connection refused")
        self.killed.extend(numbers)
        if self.knows_executors:
            for number in numbers:
                self.hosts.pop(int(number), None)

    def _kill_again(self, numbers: list[str]) -> bool:
        self._kill(numbers)
        return True

    def statusStore(self) -> Any:
        def executors(_active: bool) -> Summaries:
            found = [SimpleNamespace(id=lambda: "driver", hostPort=lambda: "driver:1")]
            for number, host in list(self.hosts.items()):
                found.append(
                    SimpleNamespace(
                        id=lambda number=number: str(number),
                        hostPort=lambda host=host: f"{host}:1" if host else "",
                    )
                )
            return Summaries(found)

        return SimpleNamespace(executorList=executors)

    def _ids(self) -> Any:
        return Summaries(str(number) for number in list(self.hosts))

    def warm_up(self, number: int, let_in: threading.Event) -> None:
        # First: `warming` is what tests wait for.
        self.let_in[number] = let_in
        done = self.warming.setdefault(number, threading.Event())
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
    monkeypatch.setattr(executor_requests, "RETRY_S", 0.01)
    found = Scheduler()
    found.hosts = {0: "a", 1: "a"}
    yield found
    for each in found.made:
        each.close()
    for done in list(found.warming.values()):
        done.set()
    # What has ended asks nothing of a test that comes later.
    until(lambda: all(each._newcomers is None for each in found.made))


def executors_of(scheduler: Scheduler, count: int, warm_up: Any = None, **more: bool) -> Executors:
    context: Any = scheduler
    found = Executors(context, count, warm_up or scheduler.warm_up, **more)
    scheduler.made.append(found)
    found.await_first()
    return found


def running_with(scheduler: Scheduler, count: int) -> Executors:
    """The manager has heard of them: a number that comes before it is told of one replaces that one."""
    found = executors_of(scheduler, count)
    assert found.ready == count
    until(lambda: scheduler.asked == [count])
    return found


def running_with_two(scheduler: Scheduler) -> Executors:
    return running_with(scheduler, 2)


def test_on_one_host_they_come_one_after_another(scheduler: Scheduler) -> None:
    executors = running_with_two(scheduler)
    executors.request(5)
    until(lambda: scheduler.asked == [2, 3])
    scheduler.hosts[2] = "a"
    until(lambda: 2 in scheduler.warming)
    assert (len(executors.active), executors.ready, scheduler.asked) == (3, 2, [2, 3]), (
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


def test_those_of_a_batch_job_come_all_at_once(scheduler: Scheduler) -> None:
    executors = executors_of(scheduler, 2, lambda _number, _let_in: None, all_at_once=True)
    until(lambda: scheduler.asked == [2])
    executors.request(5)
    until(lambda: scheduler.asked == [2, 5])
    scheduler.hosts |= dict.fromkeys(range(2, 5), "a")
    until(lambda: executors.ready == 5)


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
    executors = running_with(scheduler, 8)
    executors.request(20)
    until(lambda: scheduler.asked == [8, 12])


def test_fewer_are_asked_for_at_once_and_nobody_waits_for_more(scheduler: Scheduler) -> None:
    executors = running_with_two(scheduler)
    executors.request(5)
    until(lambda: scheduler.asked == [2, 3])
    executors.request(2)
    until(lambda: scheduler.asked == [2, 3, 2])
    assert executors.ready >= executors.wanted


def test_an_attempt_that_is_over_holds_nobody_and_asks_for_nobody(scheduler: Scheduler) -> None:
    executors = running_with_two(scheduler)
    executors.request(5)
    until(lambda: scheduler.asked == [2, 3])
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
    # The next one has time enough.
    monkeypatch.setattr(module, "WARM_UP_S", 3600.0)
    scheduler.hosts[3] = "a"
    scheduler.becomes_ready(3)
    until(lambda: executors.ready == 3)
    until(lambda: executors._newcomers is None)
    assert 2 in executors._warming, "its thread may hang for ever, and nobody waits for it"


def test_a_master_that_is_away_is_told_when_it_is_back(scheduler: Scheduler) -> None:
    executors = running_with_two(scheduler)
    scheduler.away = True
    executors.request(1)
    assert executors.trim() == 0, "the master would send another one"
    assert executors.active == [0, 1]
    scheduler.away = False
    until(lambda: scheduler.asked == [2, 1])
    until(executors.trim)
    assert scheduler.killed == ["1"]


def test_of_several_numbers_the_master_is_told_the_last(scheduler: Scheduler) -> None:
    scheduler.hosts = dict.fromkeys(range(8), "a")
    executors = running_with(scheduler, 8)
    scheduler.away = True
    for count in (7, 6, 3):
        executors.request(count)
    scheduler.away = False
    until(lambda: scheduler.asked[-1] == 3 and executors._requests.heard == 3)


def test_one_that_is_given_up_when_the_master_goes_away_is_given_up_later(scheduler: Scheduler) -> None:
    executors = running_with_two(scheduler)
    executors.request(1)
    until(lambda: executors._requests.heard == 1)
    scheduler.away = True
    assert executors.trim() == 1
    scheduler.away = False
    until(lambda: scheduler.killed == ["1"])
    assert scheduler.asked == [2, 1]


def test_a_master_that_does_not_know_it_yet_is_told_again_until_it_is_gone(scheduler: Scheduler) -> None:
    executors = running_with_two(scheduler)
    scheduler.knows_executors = False
    executors.request(1)
    until(executors.trim)
    until(lambda: len(scheduler.killed) > 2)
    assert set(scheduler.killed) == {"1"}
    scheduler.knows_executors = True
    until(lambda: 1 not in scheduler.hosts)
    until(lambda: not executors._requests._unkilled)


def test_one_that_an_attempt_before_gave_up_is_given_up_again(scheduler: Scheduler) -> None:
    scheduler.given_up = {1}
    executors_of(scheduler, 1)
    until(lambda: scheduler.killed == ["1"])


def test_a_master_that_has_forgotten_the_number_is_told_again_when_one_is_lost(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHECK_EVERY_S", 0.0)
    monkeypatch.setattr(executor_requests, "REPEAT_S", 0.0)
    executors = running_with_two(scheduler)
    executors.check()
    assert scheduler.asked == [2], "none is missing"
    scheduler.hosts = {0: "a"}
    executors.check()
    until(lambda: scheduler.asked == [2, 2])
    scheduler.hosts[7] = "a"
    scheduler.becomes_ready(7)


def test_a_job_that_has_had_no_executor_for_a_minute_fails(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHECK_EVERY_S", 0.0)
    executors = running_with_two(scheduler)
    scheduler.hosts = {}
    executors.check()
    executors._seen_at -= 61
    with pytest.raises(DriverError, match="The job has had no executor for 60 s") as error:
        executors.check()
    assert error.value.recoverable and error.value.by_cluster


def test_executors_of_which_none_can_work_are_not_waited_for_for_ever(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHECK_EVERY_S", 0.0)
    executors = running_with_two(scheduler)
    scheduler.hosts = {5: "a", 6: "a"}
    executors.check()
    assert (len(executors.active), executors.ready) == (2, 0)
    executors._worked_at -= 181
    with pytest.raises(DriverError, match="For 180 s no executor of the job could be given tasks") as error:
        executors.check()
    assert error.value.recoverable and error.value.by_cluster
    scheduler.becomes_ready(5)
    until(lambda: executors.ready == 1)
    executors.check()

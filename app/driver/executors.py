"""The executors of a job on a cluster. Each has one core, so it is a slot; they come and go while the job runs.

More of them are asked for before parallelism rises, and they are given up after it has fallen, between two batches:
then no task and no shuffle file is on them.

Spark has no setting for how many executors of one core an application gets at first and may change afterwards, other
than that of its dynamic allocation. So that is on for the first number, and then stopped: the slots that a job holds
decide from there on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection

from pyspark import SparkContext

from app.driver.executor_requests import ExecutorRequests
from app.driver.failures import DriverError, describe
from app.driver.scala import executor_hosts, executor_ids, scala_context
from app.model.kubenames import JOB_LABEL, MASTER_PREFIX
from app.model.ownsettings import FIRST_EXECUTOR_S, FIRST_EXECUTOR_SETTING

log = logging.getLogger(__name__)

ALL_S = 30.0
"""For how long it waits for one more, before it goes on with those that have come."""

PLAN_S = 45.0
"""For how long a plan waits for its executors in all: less than the control plane waits for it to be taken up."""

SETTLE_S = 5.0
"""For how long no more are asked for, at most, because some were just let in."""

WARM_UP_S = 30.0
"""For how long a newcomer may take to get warm."""

_NONE_S = 60.0
_IDLE_S = 180.0
_CHECK_EVERY_S = 2.0

_POLL_S = 0.05
_LOOK_S = 0.02
_LOOK_CLOSELY_S = 0.25

WarmUp = Callable[[int, threading.Event], None]


def first_number_conf(count: int) -> dict[str, str]:
    """The settings of a context that gets ``count`` executors of one core, and keeps them."""
    return {
        "spark.executor.cores": "1",
        "spark.dynamicAllocation.enabled": "true",
        # Executors are given up between batches, when nothing of them is needed. One of its mechanisms has to be on.
        "spark.dynamicAllocation.shuffleTracking.enabled": "false",
        "spark.dynamicAllocation.initialExecutors": str(count),
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.executorIdleTimeout": "1d",
    }


def stop_dynamic_allocation(context: SparkContext) -> None:
    """From now on only `Executors` changes their number."""
    manager = scala_context(context).executorAllocationManager()
    if manager.isDefined():
        manager.get().stop()


class Executors:
    """The executors of one SparkContext. ``wanted``: how many there should be. All methods but `trim` and `at_work` are
    for the attempt's own thread.

    New ones come a few at a time, and are warmed up and kept from the query until they are let in: neither their start
    nor their first tasks are to slow down what runs.
    """

    def __init__(
        self,
        context: SparkContext,
        wanted: int,
        warm_up: WarmUp,
        *,
        kept: Collection[int] = (),
        all_at_once: bool = False,
    ) -> None:
        """``warm_up`` gets the number of a newcomer, and what is set when it may have tasks of the query.

        ``kept``: those that are kept from all tasks, as it is at any time. ``all_at_once``: they need not come a few
        at a time.
        """
        self._context = context
        self._kept = kept
        self._all_at_once = all_at_once
        self._warm_up = warm_up
        self._requests = ExecutorRequests(context)
        self._ready: set[int] = set()
        # Since when, and what each waits for when it is warm.
        self._warming: dict[int, float] = {}
        self._entrances: dict[int, threading.Event] = {}
        self._newcomers: threading.Thread | None = None
        self._lock = threading.Lock()
        # No more are asked for before that: the first batch of those that were let in has enough to do.
        self._ask_at = 0.0
        # Whether newcomers wait until they are let in; those that replace others do not.
        self._are_held = False
        self._shrinking = self._closed = False
        self._checked_at = self._seen_at = self._worked_at = time.monotonic()
        self._moved_at = self._requested_at = self._checked_at
        self.wanted = wanted
        self._requests.ask(wanted)

    @property
    def active(self) -> list[int]:
        """The numbers of those that can be given tasks now, oldest first, without those that are being given up."""
        backend = scala_context(self._context).schedulerBackend()
        return sorted(int(each) for each in executor_ids(self._context) if backend.isExecutorActive(each))

    @property
    def count(self) -> int:
        """How many there are, those that are being given up too."""
        return int(scala_context(self._context).schedulerBackend().getExecutorIds().size())

    @property
    def ready(self) -> int:
        """How many can be given tasks that do not take longer there than elsewhere."""
        return len(self._ready.intersection(self.active))

    def at_work(self) -> list[int]:
        """The numbers of those that may have tasks of a query now, oldest first. Safe in any thread."""
        active = self.active
        with self._lock:
            return [one for one in active if one in self._ready and one not in self._entrances]

    @property
    def stalled_s(self) -> float:
        """For how long no executor has become ready."""
        return time.monotonic() - self._moved_at

    @property
    def have_had_time(self) -> bool:
        """Whether a plan is to go on without those that have not come."""
        return self.stalled_s >= ALL_S or time.monotonic() - self._requested_at >= PLAN_S

    def request(self, count: int) -> None:
        """Ask for ``count`` executors. More of them come by and by; that they are too many is for `trim`."""
        if count == self.wanted:
            return
        self._shrinking = count < self.wanted
        with self._lock:
            self.wanted = count
            self._moved_at = self._requested_at = time.monotonic()
            self._are_held = True
            if count < self._requests.count:
                self._requests.ask(count)
        self._bring_in()

    def let_in_ready(self) -> None:
        """The query has been told to use those that are ready; others that come are held."""
        with self._lock:
            for number in self._ready.intersection(self._entrances):
                self._entrances.pop(number).set()
                self._ask_at = time.monotonic() + SETTLE_S

    def settled(self) -> None:
        """The query has worked with those that were let in: more may come."""
        self._ask_at = 0.0

    def let_in_all(self) -> None:
        """The plan is in force that newcomers have come for; those that come late may work at once."""
        with self._lock:
            self._open()

    def close(self) -> None:
        """The attempt is over; another may be next in the same SparkContext. Nothing is asked for or held any more."""
        self._requests.close()
        with self._lock:
            self._closed = True
            self._open()

    def _open(self) -> None:
        self._are_held = False
        while self._entrances:
            self._entrances.popitem()[1].set()

    def _entrance(self, number: int) -> threading.Event:
        """What is set when ``number`` may have tasks of the query."""
        found = threading.Event()
        with self._lock:
            if self._are_held:
                self._entrances[number] = found
            else:
                found.set()
        return found

    def _bring_in(self) -> None:
        """Take care of new executors, unless another thread does."""
        with self._lock:
            if self._newcomers is None or not self._newcomers.is_alive():
                self._newcomers = threading.Thread(
                    target=self._look_after_newcomers, name="newcomers", daemon=True
                )
                self._newcomers.start()

    def _look_after_newcomers(self) -> None:
        """Until all that are wanted are ready."""
        known = -1
        looked_at = 0.0
        try:
            while True:
                # Often, since who is not held at once gets tasks of a query; so it has to be cheap.
                now = time.monotonic()
                if (count := self.count) != known or now - looked_at > _LOOK_CLOSELY_S:
                    known, looked_at = count, now
                    if not self._take_in_and_ask():
                        return
                time.sleep(_LOOK_S if self.stalled_s < ALL_S else _LOOK_CLOSELY_S)
        except Exception:
            # The JVM has ended, or the context, and with it the attempt.
            log.warning("newcomers among the executors are not looked after any more", exc_info=True)

    def _take_in_and_ask(self) -> bool:
        """Warm up new executors and request more. Returns whether anything is left to do."""
        # Those that come when the attempt is over are for the next one.
        active = set() if self._closed else set(self.active)
        # In this order: who stops warming up has become ready before.
        for number in active - self._warming.keys() - self._ready:
            self._warming[number] = time.monotonic()
            threading.Thread(target=self._take_in, args=(number,), daemon=True).start()
        ready = len(self._ready & active)
        at_a_time = self._at_a_time(ready)
        with self._lock:
            if self._closed or (ready >= self.wanted and not active & self._warming.keys()):
                self._newcomers = None
                return False
            count = min(self.wanted, ready + at_a_time)
            about_to_work = self._ready.intersection(active, self._entrances)
            if self._requests.count < count and not about_to_work and time.monotonic() >= self._ask_at:
                self._requests.ask(count)
        self._give_up_hanging(active)
        return True

    def _give_up_hanging(self, active: set[int]) -> None:
        """Who does not get warm is of no use to a query either; Spark sends another one."""
        now = time.monotonic()
        hanging = [one for one in active if now - self._warming.get(one, now) > WARM_UP_S]
        for number in hanging:
            log.warning("executor %d did not get warm within %g s, and is replaced", number, WARM_UP_S)
            self._warming[number] = now
        self._requests.kill(hanging)

    def _at_a_time(self, ready: int) -> int:
        """How many may start at the same time: one on each host, or half as many as work already."""
        if self._all_at_once:
            return self.wanted
        hosts = set(executor_hosts(self._context).values()) - {""}
        return max(1, len(hosts), ready // 2)

    def _take_in(self, number: int) -> None:
        try:
            self._warm_up(number, self._entrance(number))
            log.warning("executor %d is warm", number)
        except Exception as error:
            # It costs speed only.
            log.warning("executor %d was not warmed up: %s", number, describe(error).sentence)
        self._ready.add(number)
        self._warming.pop(number, None)
        if number in self.active:
            self._moved_at = time.monotonic()

    def trim(self) -> int:
        """Give up the executors beyond those wanted, the newest first; how many. For a moment without tasks."""
        surplus = self._surplus()
        self._requests.kill(surplus)
        return len(surplus)

    def retire(self) -> None:
        """Give up the executors beyond those wanted, the newest first, while tasks run: each ends those that it has.
        One that is not warm, or kept from tasks, has none but what holds it, which may not end."""
        surplus = self._surplus()
        held = {*list(self._warming), *list(self._kept)} & set(surplus)
        self._requests.kill(held)
        self._requests.decommission([one for one in surplus if one not in held])

    def _surplus(self) -> list[int]:
        # A master that does not know of the smaller number would send others; it may be away as well. In this order:
        # what is wanted changes before it is said.
        wanted, heard = self.wanted, self._requests.heard
        surplus = self.active[wanted:] if heard is not None and heard <= wanted else []
        if surplus:
            log.warning("executors given up: %s", ", ".join(map(str, surplus)))
        return surplus

    def trim_idle(self) -> None:
        """`trim`, if fewer are wanted than before: for a query that has nothing to do."""
        if self._shrinking:
            self._shrinking = self.trim() == 0 and len(self.active) > self.wanted

    def check(self) -> None:
        """Look now and then whether there are any.

        Raises:
            DriverError: for a minute there have been none, so nothing runs: the master has lost the application. Or for
                three there have been none that could work.
        """
        now = time.monotonic()
        if now - self._checked_at < _CHECK_EVERY_S:
            return
        if now - self._checked_at > _NONE_S / 2:
            # The executors were not checked meanwhile.
            self._seen_at = self._worked_at = now
        self._checked_at = now
        if self.ready < self.wanted:
            # Some have been lost, and others come: at once, or when a master that was away has been told.
            self._bring_in()
            self._requests.repeat()
        if self.active:
            self._seen_at = now
        elif now - self._seen_at > _NONE_S:
            raise DriverError(
                f"The job has had no executor for {_NONE_S:.0f} s.", recoverable=True, by_cluster=True
            )
        if self.ready:
            self._worked_at = now
        elif now - self._worked_at > _IDLE_S:
            raise DriverError(
                f"For {_IDLE_S:.0f} s no executor of the job could be given tasks: none of them gets warm, or sees the "
                "driver's files (the driver's log says which).",
                recoverable=True,
                by_cluster=True,
            )

    def await_first(self) -> None:
        """Wait until the executors are there, or some of them for a while.

        Raises:
            DriverError: none has come.
        """
        began = time.monotonic()
        while (present := len(active := self.active)) < self.wanted:
            self._ready = set(active)
            waited_s = time.monotonic() - began
            if present and waited_s >= ALL_S:
                log.warning("%d of %d executors have come; the job begins with them", present, self.wanted)
                return
            first_s = float(self._context.getConf().get(FIRST_EXECUTOR_SETTING) or FIRST_EXECUTOR_S)
            if waited_s >= first_s:
                raise DriverError(
                    f"None of {self.wanted} executors has come within {first_s:.0f} s. {self._where_to_look()}",
                    recoverable=True,
                    by_cluster=True,
                )
            time.sleep(_POLL_S)
        self._ready = set(active)

    def _where_to_look(self) -> str:
        if str(self._context.master).startswith(MASTER_PREFIX):
            conf = self._context.getConf()
            label = conf.get(f"spark.kubernetes.executor.label.{JOB_LABEL}")
            namespace = conf.get("spark.kubernetes.namespace")
            return (
                f"`kubectl --namespace {namespace} describe pods -l {JOB_LABEL}={label}` says why, if there are pods; "
                "else the driver's log."
            )
        return (
            "The page of the Spark master says whether workers have free cores and memory, and the logs of the "
            "workers why executors end."
        )

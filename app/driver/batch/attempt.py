"""One attempt of a batch job in this driver process: it runs the regions that its orders name."""

from __future__ import annotations

import json
import logging
import queue
import time
from dataclasses import asdict, replace
from typing import Any

from app.driver.base_attempt import TOLD_TO_END, BaseAttempt, Ending, Terminate
from app.driver.batch.region import RegionDone, RegionRun
from app.driver.batch.results import Keeper
from app.driver.batch.sources import Schemas, source_bytes
from app.driver.batch.storage import Storages
from app.driver.failures import Failure, Fenced
from app.driver.session import is_stopped
from app.model.batch import RegionOrder
from app.model.protocol import REPORT_LIMIT_CHARS, Orders

log = logging.getLogger(__name__)

_PROGRESS_S = 1.0
"""How often Spark is asked how far the runs are."""

_CANCEL_S = 5.0
"""How long the removal of a job's results waits for what still writes them."""


_REST_CHARS = 16 * 1024
"""Of a report beside its results."""


class BatchAttempt(BaseAttempt):
    """Starts what the orders name and does not run, cancels what runs and is not named any more.

    It decides nothing: which regions run when, and what a failure means, is for the scheduler.
    """

    _batch = True

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self._runs: dict[int, RegionRun] = {}
        self._wanted: dict[tuple[int, int], RegionOrder] = {}
        self._done: dict[tuple[int, int], set[str]] = {}
        self._orders: Orders | None = None
        self._results_dir = self.spec.results_dir
        self._keeper: Keeper | None = None

    def _until_end(self) -> Ending:
        self._session = self._begin()
        self._schemas = Schemas(self._session, self.spec.spark_conf, self._graph)
        self._storages = Storages(self._session)
        self._keeper = Keeper(self._storages, self._results_dir)
        client = self._connect(self._session)
        client.report(
            type="running",
            plan_version=self.spec.plan_version,
            source_bytes=source_bytes(self._session, self._graph),
            **self._news.figures(),
        )
        self._keeper.remove_ended(self.spec.ended_results)
        while True:
            message = self._next_message()
            match message:
                case None:
                    if self._executors is not None:
                        self._executors.check()
                    self._report_progress()
                    continue
                case Fenced():
                    raise message
                case Terminate():
                    return self._fail(TOLD_TO_END)
                case RegionDone():
                    failed = self._on_done(message)
                    if failed is not None:
                        return failed
                case Orders():
                    self._orders = message
            ending = self._follow()
            if ending is not None:
                return ending

    def _next_message(self) -> Any:
        """The next message; None if a region runs and no message has come for `_PROGRESS_S`."""
        try:
            return self._inbox.get(timeout=_PROGRESS_S if self._runs else None)
        except queue.Empty:
            return None

    def _report_progress(self) -> None:
        """How far the runs are, where that has changed."""
        try:
            self._news.turn()
        except Exception as error:
            log.debug("the executors cannot be counted: %s", error)
        for region, run in self._runs.items():
            self._report_tasks(region, run.order.run, run.task_news)

    def _follow(self) -> Ending | None:
        """Do what the latest orders say."""
        orders = self._orders
        # Only the newest orders count, and they are behind what is there.
        if orders is None or not self._inbox.empty():
            return None
        if orders.stop in ("kill", "boundary"):
            return self._killed(orders)
        self._wanted = {(order.region, order.run): order for order in orders.regions}
        for region, running in self._runs.items():
            if (region, running.order.run) not in self._wanted:
                running.cancel()
        for key, order in self._wanted.items():
            # A run that was canceled may still be ending: the next one of its region waits for that.
            if order.region not in self._runs and key not in self._done:
                self._start(order)
        if orders.stop == "drain" and not self._runs:
            self._may_commit()
            assert self._keeper is not None
            self._keeper.remove_all()
            return self._last_word(type="finished")
        self._sweep(orders.results)
        return None

    def _killed(self, orders: Orders) -> Ending:
        """Without results that count, the job ends: what it has written goes, if only this process can remove it."""
        assert self._keeper is not None
        if orders.results or not self._keeper.is_driver_alone:
            return Ending.DONE
        for run in self._runs.values():
            run.cancel()
        # What still writes would make the directories anew.
        deadline = time.monotonic() + _CANCEL_S
        while self._runs and (left_s := deadline - time.monotonic()) > 0:
            try:
                message = self._inbox.get(timeout=left_s)
            except queue.Empty:
                break
            if isinstance(message, RegionDone):
                self._runs.pop(message.order.region)
            elif isinstance(message, Fenced):
                raise message
        self._may_commit()
        self._keeper.remove_all()
        return self._last_word(type="stopped")

    def _fail(self, failure: Failure, *, repartition_failed: bool = False) -> Ending:
        if not failure.recoverable and not self._fenced and self._keeper and self._keeper.is_driver_alone:
            # The job fails with it. If it does not after all, lost results are made again.
            self._keeper.remove_all()
        return super()._fail(failure, repartition_failed=repartition_failed)

    def _start(self, order: RegionOrder) -> None:
        assert self._client is not None
        client = self._client
        run = RegionRun(
            order,
            graph=self._graph,
            session=self._session,
            conf=self.spec.spark_conf,
            functions=self._functions,
            schemas=self._schemas,
            storages=self._storages,
            job_id=self.spec.job_id,
            results_dir=self._results_dir,
            work_dir=self._work_dir,
            epoch=lambda: client.epoch,
            may_commit=self._may_commit,
            tell=self._inbox.put,
        )
        self._runs[order.region] = run
        run.start()

    def _on_done(self, done: RegionDone) -> Ending | None:
        """Report the end of a run. The answer is not None if Spark itself has ended: then so does the attempt."""
        run = self._runs.pop(done.order.region)
        key = (done.order.region, done.order.run)
        if done.fenced:
            raise Fenced
        if key not in self._wanted:
            return None
        self._done[key] = run.result_paths
        failure = done.failure or _too_long(done)
        if failure is None:
            self._report(type="region-finished", region=key[0], run=key[1], results=done.results)
            return None
        if is_stopped(self._session):
            # No other run will do better in this process.
            return self._fail(replace(failure, recoverable=True))
        log.error("region %d failed: %s\n%s", key[0], failure.sentence, failure.stack)
        self._report(
            type="region-failed",
            region=key[0],
            run=key[1],
            error=failure.sentence,
            stack=failure.stack,
            vertex=failure.vertex,
            recoverable=failure.recoverable,
            lost=done.lost,
            why=failure.why,
            # A region whose input was lost, or its executors, has not raised it by itself.
            user_error=None if done.lost or failure.outside else failure.user_error,
        )
        return None

    def _sweep(self, results: tuple[str, ...]) -> None:
        """Remove results that are not needed, and files of killed drivers."""
        self._may_commit()
        kept = set(results)
        for run in self._runs.values():
            kept |= run.places
        for key, paths in list(self._done.items()):
            if key in self._wanted:
                # Done, and the control plane has not answered that yet.
                kept |= paths
            else:
                del self._done[key]
        assert self._keeper is not None
        self._keeper.keep(kept)


def _too_long(done: RegionDone) -> Failure | None:
    """A failure if the results cannot be reported: the control plane would refuse the report each time."""
    size = len(json.dumps([asdict(result) for result in done.results]))
    if size <= REPORT_LIMIT_CHARS - _REST_CHARS:
        return None
    parts = sum(len(result.bytes_of) for result in done.results)
    sentence = (
        f"Region {done.order.region} has left results of {parts} subpartitions in all, which are more than can be "
        "reported: give the vertices that read them a lower upperBound or maxParallelism."
    )
    return Failure(sentence, "", recoverable=False)

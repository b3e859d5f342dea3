"""A Spark standalone cluster as a source of slots: the page of its master is read, and its workers offer slots.

A master that does not answer, or that recovers, reports no workers. Then running jobs keep their slots, because
their executors continue without it, and nothing is started.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import httpx
import structlog
from cachetools import LRUCache

from app.cluster.periodic import Periodic
from app.cluster.ports import ExecutorLog, ExecutorLogAway, NoApplication, NoExecutorLog, Offer
from app.cluster.reachability import Reachability
from app.cluster.standalone.identity import Match, match, of_another
from app.cluster.standalone.roster import (
    NotAMaster,
    Roster,
    Worker,
    application_name,
    in_others_hands,
    job_of,
    read_roster,
    too_small,
    version_on,
)
from app.model.addresses import spark_masters
from app.model.ownsettings import FIRST_EXECUTOR_S

log = structlog.get_logger()

_ANSWER_TIMEOUT_S = 5.0
# Workers look for a master that was away every few seconds.
_GRACE_S = 20.0
_CLEARED_DEADLINE_S = 15.0
_CLEARED_POLL_S = 0.2
# What is not known of a name may be known later.
_MATCH_AGAIN_S = 60.0
_HEADER: Final = re.compile(rb"==== Bytes (\d+)-(\d+) of (\d+) of [^\n]* ====\n?")
_HEADER_BYTES: Final = 8192
_AT_ONCE: Final = 8
"""Workers that are asked at the same time."""
_PLACES_MAX: Final = 1_000
_MOST_BYTES: Final = 8 << 20
"""Of the page of a worker: it may show a thousand executors."""


class StandaloneCluster:
    """Implements `app.cluster.ports.ExecutorCluster`. ``webuis``: the pages of all masters; one is alive."""

    def __init__(
        self,
        master: str,
        webuis: Sequence[str],
        *,
        executor_memory_mb: int,
        driver_host: str,
        now_ms: Callable[[], int],
    ) -> None:
        self.master = master
        self.poll_s = 0.5
        self._webuis = [each.rstrip("/") for each in webuis]
        self._answered = ""
        self._memory_mb = executor_memory_mb
        self._driver_host = driver_host
        self._now_ms = now_ms
        self._http = httpx.AsyncClient(timeout=_ANSWER_TIMEOUT_S, trust_env=False)
        self._executor_logs = ExecutorLogPages(self._http)
        # What was last known of the workers, and since when each.
        self._known: dict[str, Worker] = {}
        self._since_ms: dict[str, int] = {}
        self._reachability = Reachability("The Spark master", now_ms)
        self._grace_until = 0.0
        self._told: str | None = None
        # By how a master calls itself: whether it is the one that is called, and until when that holds.
        self._matches: dict[str, tuple[Match, float]] = {}
        self.periodic = Periodic()

    @property
    def unreachable(self) -> str:
        return self._reachability.unreachable

    @property
    def first_executor_s(self) -> float:
        return FIRST_EXECUTOR_S

    def executor_conf(self, job_id: str, attempt: int) -> dict[str, str]:
        return {
            "spark.executor.memory": f"{self._memory_mb}m",
            "spark.driver.host": self._driver_host,
            "spark.driver.bindAddress": self._driver_host,
        }

    async def runtime_fault(self, spark_version: str) -> str:
        """Executors have the Python and the packages of their driver, and the Spark of their worker."""
        found = await self._spark_version()
        if not found or found == spark_version:
            return ""
        return (
            f"the job would run with PySpark {spark_version}, and the cluster {self.master} runs Spark {found}: "
            f"the driver and its executors need the same version. Use an environment with pyspark=={found}."
        )

    def application_name(self, job_name: str, job_id: str, attempt: int) -> str:
        return application_name(job_name, job_id, attempt)

    @property
    def workers(self) -> list[tuple[Worker, int, int]]:
        """Each worker that is offered, its slots, and since when it is known (epoch milliseconds)."""
        known = self._known.values()
        return [(one, one.slots(self._memory_mb), self._since_ms[one.id]) for one in known]

    async def look(self, is_ours: Callable[[str], bool]) -> Offer:
        """What the cluster offers now."""
        roster = await self._roster()
        if roster is None:
            self._reachability.lost(self._told or "")
            return self._offer(0, unreachable=True, why=(self.unreachable,))
        now = time.monotonic()
        if self._reachability.found():
            self._grace_until = now + _GRACE_S
        found = {worker.id: worker for worker in roster.workers}
        if now < self._grace_until:
            # Those that have not found the new master yet; their executors run.
            places = {(worker.host, worker.port) for worker in roster.workers}
            missing = {
                one.id: one
                for one in self._known.values()
                if one.id not in found and (one.host, one.port) not in places
            }
            found = {**missing, **found}
        self._note(found)
        cores, without_memory = roster.withheld(is_ours, self._memory_mb)
        why = [*too_small(found.values(), self._memory_mb), *in_others_hands(cores, without_memory)]
        return self._offer(cores + without_memory, unreachable=False, why=tuple(why))

    async def cleared(self, job_id: str) -> None:
        """Wait until the master has ended the application of the job's last driver, and with it told the workers to
        kill its executors. What they may still do then is not seen: files of state are replaced whole, and only a
        driver commits what a sink is given."""
        deadline = time.monotonic() + _CLEARED_DEADLINE_S
        while time.monotonic() < deadline:
            roster = await self._roster()
            if roster is not None and all(job_of(one.name) != job_id for one in roster.applications):
                return
            await asyncio.sleep(_CLEARED_POLL_S)
        log.warning("the master still shows an application of a driver that is gone", job=job_id)

    async def executor_log(
        self, job_id: str, attempts: range, executor: int, output: str, begin: int, size: int
    ) -> ExecutorLog:
        if (roster := await self._roster()) is None:
            raise ExecutorLogAway(f"The Spark master is away: {self._told}.")
        return await self._executor_logs.read(roster, job_id, attempts, executor, output, begin, size)

    async def close(self) -> None:
        await self._http.aclose()

    # -- inside

    def _offer(self, withheld: int, *, unreachable: bool, why: tuple[str, ...]) -> Offer:
        slots = tuple((one.id, one.slots(self._memory_mb)) for one in self._known.values())
        return Offer(slots, withheld=withheld, unreachable=unreachable, why=why)

    def _note(self, found: dict[str, Worker]) -> None:
        for worker_id in found.keys() - self._known.keys():
            self._welcome(found[worker_id])
        for worker_id in self._known.keys() - found.keys():
            log.warning("worker lost", worker=worker_id)
        since = {each: self._since_ms.get(each, self._now_ms()) for each in found}
        # In a stable order: that in which they came.
        order = sorted(found, key=lambda each: (since[each], each))
        self._known, self._since_ms = {each: found[each] for each in order}, since

    def _welcome(self, worker: Worker) -> None:
        slots = worker.slots(self._memory_mb)
        log.info("worker arrived", worker=worker.id, cores=worker.cores, slots=slots)
        if slots < worker.cores:
            log.warning(
                "a worker has too little memory for an executor on each of its cores",
                worker=worker.id,
                cores=worker.cores,
                slots=slots,
                memory_mb=worker.memory_mb,
                cluster_executor_memory_mb=self._memory_mb,
            )

    async def _roster(self) -> Roster | None:
        """What the master that is alive says; None if none is."""
        reasons = []
        # The one that answered last comes first: a host that is down takes as long as a look may.
        for webui in sorted(self._webuis, key=lambda one: one != self._answered):
            try:
                answer = await self._http.get(f"{webui}/json/")
                answer.raise_for_status()
                roster = read_roster(answer.json())
            except (httpx.HTTPError, NotAMaster, ValueError) as error:
                reasons.append(f"{webui}: {str(error) or type(error).__name__}")
                continue
            if await self._match(webui, roster.url) is Match.OTHER:
                reasons.append(f"{webui}: {of_another(roster.url, self.master)}")
                continue
            if roster.is_alive:
                self._answered = webui
                self._tell("")
                return roster
            reasons.append(f"{webui}: the master is {roster.status}")
        self._tell("; ".join(reasons))
        return None

    async def _spark_version(self) -> str:
        """That of the master, as the page for people says; empty if it cannot be told."""
        with contextlib.suppress(httpx.HTTPError):
            answer = await self._http.get(f"{self._answered or self._webuis[0]}/")
            return version_on(answer.text)
        return ""

    async def _match(self, webui: str, url: str) -> Match:
        """Whether the page is that of a master that jobs are told. A change is logged once."""
        before, until = self._matches.get(url, (None, 0.0))
        if before is not None and time.monotonic() < until:
            return before
        # It may look up names, which takes as long as it takes.
        found = await asyncio.to_thread(match, spark_masters(self.master), url)
        self._matches[url] = (found, time.monotonic() + _MATCH_AGAIN_S)
        if found is Match.OTHER and before is not found:
            log.error(
                "cluster_webui is the page of another master than cluster_master: its workers are not used",
                page=webui,
                page_of=url,
                cluster_master=self.master,
            )
        elif found is Match.UNKNOWN and before is not found and url:
            log.warning(
                "whether cluster_webui is the page of cluster_master cannot be told: it has another address",
                page=webui,
                page_of=url,
                cluster_master=self.master,
            )
        return found

    def _tell(self, reason: str) -> None:
        """Log a change once."""
        if reason and self._told != reason:
            log.warning(
                "the Spark master is away; jobs go on with the executors that they have", reason=reason
            )
        elif not reason and self._told:
            log.info("the Spark master is back", master=self.master)
        self._told = reason


class ExecutorLogPages:
    """Remembers on which worker each executor was found: who follows its log asks that worker alone."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._found: LRUCache[tuple[str, int], str] = LRUCache(_PLACES_MAX)

    async def read(
        self, roster: Roster, job_id: str, attempts: range, executor: int, output: str, begin: int, size: int
    ) -> ExecutorLog:
        """See `ExecutorCluster.executor_log`; of the newest application of the driver.

        Raises:
            NoExecutorLog: there is none, or no worker tells of it; a sentence.
        """
        application = roster.newest_of(job_id, attempts)
        if application is None:
            raise NoApplication(
                f"The Spark master knows of no application of attempt {attempts[-1]} of job {job_id}."
            )
        log = {"appId": application, "executorId": executor, "logType": output}
        place = (application, executor)
        webui = self._found.get(place)
        if webui is None or webui not in {each.webui for each in roster.workers}:
            webui = await self._worker_of(roster, job_id, application, executor)
        try:
            part = await _part(self._http, f"{webui}/log/", log, begin, size)
        except NoExecutorLog:
            # The next one who asks looks for it again.
            self._found.pop(place, None)
            raise
        self._found[place] = webui
        return part

    async def _worker_of(self, roster: Roster, job_id: str, application: str, executor: int) -> str:
        """The page of the worker that has an executor, which all workers are asked for."""
        places, silent = await _executors(self._http, roster.workers, application)
        if (webui := places.get(executor)) is not None:
            return webui
        known = ", ".join(map(str, sorted(places))) or "none"
        sentence = (
            f"have no log of executor {executor} of job {job_id}, whose application is {application}; there are logs "
            f"of: {known}."
        )
        if silent:
            raise ExecutorLogAway(
                f"{len(silent)} of {len(roster.workers)} workers did not list their executors: {silent[0]} The others "
                f"{sentence}"
            )
        raise NoExecutorLog(f"The workers that are alive {sentence}")


async def _part(
    http: httpx.AsyncClient, url: str, asked: dict[str, Any], begin: int, size: int
) -> ExecutorLog:
    # A byte that is no character of UTF-8 comes as three.
    content = await _get(http, url, {**asked, "offset": begin, "byteLength": size}, 3 * size + _HEADER_BYTES)
    if (header := _HEADER.match(content)) is None:
        raise NoExecutorLog(
            f"The worker at {url} does not give the {asked['logType']} of executor {asked['executorId']}."
        )
    first, end, length = map(int, header.groups())
    text = content[header.end() :].decode(errors="replace")
    if text and end == first:
        # Spark answers an error as a log: with status 200, and with a header that counts no bytes.
        raise NoExecutorLog(f"The worker at {url} says: {' '.join(text.split())[:300]}")
    return ExecutorLog(text, first, end, length)


async def _executors(
    http: httpx.AsyncClient, workers: Iterable[Worker], application: str
) -> tuple[dict[int, str], list[str]]:
    """The page of the worker of each executor of an application, also of those that have ended; and a sentence for each
    worker that does not list its executors."""
    turns = asyncio.Semaphore(_AT_ONCE)
    places: dict[int, str] = {}
    silent: list[str] = []

    async def ask(worker: Worker) -> None:
        url = f"{worker.webui}/json/"
        async with turns:
            try:
                page = await _get(http, url, {}, _MOST_BYTES)
                # In a thread: the pages of many workers may be long.
                numbers = await asyncio.to_thread(_numbers, page, application)
                places.update(dict.fromkeys(numbers, worker.webui))
            except ExecutorLogAway as error:
                silent.append(str(error))
            except (ArithmeticError, KeyError, RecursionError, TypeError, ValueError):
                silent.append(f"The answer of {url} is not the page of a Spark worker.")

    await asyncio.gather(*map(ask, workers))
    return places, silent


def _numbers(page: bytes, application: str) -> list[int]:
    document = json.loads(page)
    every = [*document["executors"], *document["finishedexecutors"]]
    return [int(one["id"]) for one in every if one["appid"] == application]


async def _get(http: httpx.AsyncClient, url: str, asked: dict[str, Any], most: int) -> bytes:
    """The body of an answer, which ends after ``most`` bytes."""
    content = bytearray()
    try:
        async with http.stream("GET", url, params=asked) as answer:
            if not answer.is_success:
                raise ExecutorLogAway(f"The worker at {url} answers with status {answer.status_code}.")
            async for piece in answer.aiter_bytes():
                content += piece
                if len(content) > most:
                    break
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        why = str(error) or type(error).__name__
        raise ExecutorLogAway(f"The worker at {url} does not answer: {why}.") from error
    return bytes(content[:most])

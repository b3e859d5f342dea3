"""What executors on the workers of a Spark cluster have written, as the workers' own pages give it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable
from typing import Any, Final

import httpx

from app.cluster.ports import ExecutorLog, ExecutorLogAway, NoApplication, NoExecutorLog
from app.cluster.standalone.roster import Roster, Worker

_HEADER: Final = re.compile(rb"==== Bytes (\d+)-(\d+) of (\d+) of [^\n]* ====\n?")
_HEADER_BYTES: Final = 8192
_AT_ONCE: Final = 8
"""Workers that are asked at the same time."""
_PLACES_MAX: Final = 1_000
_MOST_BYTES: Final = 8 << 20
"""Of the page of a worker: it may show a thousand executors."""


class ExecutorLogPages:
    """Remembers on which worker each executor was found: who follows its log asks that worker alone."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._found: dict[tuple[str, int], str] = {}

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
        # Those asked for long ago are forgotten.
        self._found.pop(place, None)
        self._found[place] = webui
        while len(self._found) > _PLACES_MAX:
            del self._found[next(iter(self._found))]
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


async def _part(http: httpx.AsyncClient, url: str, log: dict[str, Any], begin: int, size: int) -> ExecutorLog:
    # A byte that is no character of UTF-8 comes as three.
    content = await _get(http, url, {**log, "offset": begin, "byteLength": size}, 3 * size + _HEADER_BYTES)
    if (header := _HEADER.match(content)) is None:
        raise NoExecutorLog(
            f"The worker at {url} does not give the {log['logType']} of executor {log['executorId']}."
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

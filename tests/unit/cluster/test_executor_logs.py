"""What the pages of workers tell of executors, and how a part of a log is asked for."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from app.cluster.ports import ExecutorLog, ExecutorLogAway, NoApplication, NoExecutorLog
from app.cluster.standalone.cluster import ExecutorLogPages
from app.cluster.standalone.roster import application_name, read_roster
from tests.unit.cluster.test_roster import JOB, page, worker

TEXT = "one\ntwö\nthree\n".encode()


class Workers:
    """Two workers: on the first runs executor 0, on the other one ran executor 1 of two applications of the job."""

    def __init__(self) -> None:
        active = {"id": "app-2", "name": application_name("a job", JOB, 3), "cores": 1, "starttime": 20}
        others = {"id": "app-9", "name": "somebody", "cores": 1, "starttime": 99}
        before = {"id": "app-1", "name": application_name("a job", JOB, 2), "cores": 1, "starttime": 10}
        self.page: Any = {
            **page(worker(1), worker(2)),
            "activeapps": [active, others],
            "completedapps": [before],
        }
        self.executors: dict[int, Any] = {
            8001: {"executors": [{"id": 0, "appid": "app-2"}], "finishedexecutors": []},
            8002: {
                "executors": [{"id": 0, "appid": "app-9"}],
                "finishedexecutors": [{"id": 1, "appid": "app-2"}, {"id": 7, "appid": "app-1"}],
            },
        }
        self.log: bytes | None = TEXT
        # As `LogPage.renderLog` of Spark does.
        self.told = (
            "==== Bytes 0-0 of 0 of file:/spark/app-2/0/stderr ====\n"
            "Error: invalid log directory file:/spark/app-2/0/\n"
        )
        self.asked: list[str] = []
        self.listed: list[int] = []

    def answer(self, request: httpx.Request) -> httpx.Response:
        port = request.url.port
        assert port is not None
        if request.url.path == "/json/":
            self.listed.append(port)
            found = self.executors[port]
            return httpx.Response(200, text=json.dumps(found)) if found is not None else httpx.Response(403)
        self.asked.append(f"{port} {request.url.query.decode()}")
        if self.log is None:
            return httpx.Response(200, text=self.told)
        begin = min(int(request.url.params["offset"]), len(self.log))
        part = self.log[begin : begin + int(request.url.params["byteLength"])]
        head = f"==== Bytes {begin}-{begin + len(part)} of {len(self.log)} of /logs/app-2/0/stderr ====\n"
        return httpx.Response(200, content=head.encode() + part)

    def read(
        self, executor: int, *spans: tuple[int, int], attempts: range = range(1, 4)
    ) -> list[ExecutorLog]:
        """One after another, as one who follows does."""

        async def read() -> list[ExecutorLog]:
            async with httpx.AsyncClient(transport=httpx.MockTransport(self.answer)) as http:
                pages, roster = ExecutorLogPages(http), read_roster(self.page)
                return [await pages.read(roster, JOB, attempts, executor, "stderr", *span) for span in spans]

        return asyncio.run(read())


def test_parts_are_those_of_the_executors_worker() -> None:
    workers = Workers()
    assert workers.read(1, (0, 4), (4, 100)) == [
        ExecutorLog("one\n", 0, 4, len(TEXT)),
        ExecutorLog("twö\nthree\n", 4, len(TEXT), len(TEXT)),
    ]
    of = "8002 appId=app-2&executorId=1&logType=stderr"
    assert workers.asked == [f"{of}&offset=0&byteLength=4", f"{of}&offset=4&byteLength=100"]
    assert workers.read(0, (500, 10)) == [ExecutorLog("", len(TEXT), len(TEXT), len(TEXT))]
    assert workers.asked[-1].startswith("8001 ")


def test_who_goes_on_reading_asks_the_worker_of_the_executor_alone() -> None:
    workers = Workers()
    workers.read(1, (0, 4), (4, 4), (8, 4))
    assert sorted(workers.listed) == [8001, 8002] and len(workers.asked) == 3


def test_an_executor_whose_worker_is_gone_or_has_lost_its_log_is_looked_for_again() -> None:
    workers = Workers()

    async def read() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(workers.answer)) as http:
            pages, span = ExecutorLogPages(http), (JOB, range(1, 4), 1, "stderr", 0, 4)
            await pages.read(read_roster(workers.page), *span)
            assert len(workers.listed) == 2
            workers.log = None
            with pytest.raises(NoExecutorLog, match="invalid log directory"):
                await pages.read(read_roster(workers.page), *span)
            assert len(workers.listed) == 2
            workers.log = TEXT
            await pages.read(read_roster(workers.page), *span)
            assert len(workers.listed) == 4
            gone = {**workers.page, "workers": workers.page["workers"][:1]}
            with pytest.raises(NoExecutorLog, match="no log of executor 1"):
                await pages.read(read_roster(gone), *span)
            assert len(workers.listed) == 5

    asyncio.run(read())


def test_bytes_that_are_no_text_are_told_as_such() -> None:
    workers = Workers()
    (part,) = workers.read(0, (0, 6))
    assert (part.text, part.end) == ("one\ntw", 6)
    (part,) = workers.read(0, (0, 7))
    assert part.text == "one\ntw\ufffd"


def test_an_application_that_is_over_is_the_newest_while_there_is_no_other() -> None:
    workers = Workers()
    workers.page["activeapps"] = []
    (part,) = workers.read(7, (0, 4))
    assert part.text == "one\n" and workers.asked[0].startswith("8002 appId=app-1&executorId=7")


def test_the_application_of_another_driver_is_never_taken_for_that_of_the_newest() -> None:
    workers = Workers()
    with pytest.raises(NoApplication, match=f"no application of attempt 4 of job {JOB}"):
        workers.read(0, (0, 4), attempts=range(4, 5))
    workers.read(7, (0, 4), attempts=range(1, 3))
    assert workers.asked == ["8002 appId=app-1&executorId=7&logType=stderr&offset=0&byteLength=4"]


def test_what_is_not_there_is_said_in_a_sentence() -> None:
    workers = Workers()
    with pytest.raises(
        NoExecutorLog, match=r"no log of executor 5 .* application is app-2; .* logs of: 0, 1\.$"
    ):
        workers.read(5, (0, 4))
    workers.log = None
    for part in ((0, 0), (0, 4), (9, 4)):
        with pytest.raises(
            NoExecutorLog, match=r"8001/log/ says: Error: invalid log directory file:/spark/app-2/0/$"
        ):
            workers.read(0, part)
    workers.told = "another page"
    with pytest.raises(NoExecutorLog, match="does not give the stderr of executor 0"):
        workers.read(0, (0, 4))
    # A worker whose page is something else hides none of the others.
    workers.executors[8001] = {"executors": "none"}
    with pytest.raises(ExecutorLogAway, match=r"^1 of 2 .*8001/json/ is not the page of .* logs of: 1\.$"):
        workers.read(0, (0, 4))
    workers.executors[8001] = {"executors": [{"id": float("inf"), "appid": "app-2"}], "finishedexecutors": []}
    with pytest.raises(ExecutorLogAway, match="is not the page of a Spark worker"):
        workers.read(0, (0, 4))
    workers.executors[8001] = None
    with pytest.raises(ExecutorLogAway, match=r"8001/json/ answers with status 403\. The others have no log"):
        workers.read(0, (0, 4))
    workers.log = TEXT
    assert workers.read(1, (0, 4))[0].text == "one\n"
    workers.page = page(worker(1))
    with pytest.raises(NoApplication, match=f"knows of no application of attempt 3 of job {JOB}"):
        workers.read(0, (0, 4))

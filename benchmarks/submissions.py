"""How long until a submission is answered, with many clients at once; and 50 within a second.

    python benchmarks/submissions.py [--clients 32] [--each 20] [--at-once 50] [--json]

Each client submits a streaming program with its file, again as soon as it was answered. The server has one slot, which
a job without input holds throughout, so the others wait for it. Then `--at-once` programs are submitted in a second,
as jobs and as batches of Livy. Milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import _http_load as http_load
from benchmarks._servers import server, wait_for

_BOUNDARY = "a-part-of-the-form"
PROGRAM = b"""\
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.format("rate").load()
counts = rows.groupBy(rows.value % 10).count().writeStream.outputMode("update").format("noop")
counts.trigger(processingTime="1 hour").start().awaitTermination()
"""
Sent = tuple[float, int]
"""How long it took, in milliseconds, and the status of the answer."""


async def submit(client: httpx.AsyncClient, name: str) -> tuple[Sent, str | None]:
    document = json.dumps({"name": name, "script": "job.py"})
    began = time.perf_counter()
    answer = await client.post(
        "/jobs",
        files=[
            ("graph", ("graph.json", document, "application/json")),
            ("files", ("job.py", PROGRAM, "application/octet-stream")),
        ],
    )
    sent = (time.perf_counter() - began) * 1000, answer.status_code
    return sent, answer.json().get("jobid")


async def submit_batch(client: httpx.AsyncClient, name: str, file: Path) -> tuple[Sent, str | None]:
    began = time.perf_counter()
    answer = await client.post("/batches", json={"name": name, "file": str(file)})
    sent = (time.perf_counter() - began) * 1000, answer.status_code
    return sent, str(answer.json().get("id"))


def clients(url: str, count: int, each: int) -> dict[str, Any]:
    """Each client submits its jobs one after another."""

    def request(number: int, round_: int) -> str:
        document = json.dumps({"name": f"job-{number}-{round_}", "script": "job.py"})
        parts = (("graph", "graph.json", document), ("files", "job.py", PROGRAM.decode()))
        body = "".join(
            f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"; filename="{file}"\r\n\r\n{content}\r\n'
            for name, file, content in parts
        )
        return f"POST /jobs {body}--{_BOUNDARY}--\r\n"

    figures = http_load.run(
        {
            "port": int(url.rpartition(":")[2]),
            "clients": count,
            "once": True,
            "content_type": f"multipart/form-data; boundary={_BOUNDARY}",
            "requests": [[request(number, round_) for round_ in range(each)] for number in range(count)],
        }
    )
    return {
        "what": f"{count} clients",
        "requests": figures["answers"],
        **{name: figures[f"{name}_ms"] for name in ("p50", "p99", "max")},
        "answers": figures["all_statuses"],
    }


async def at_once(
    url: str, count: int, send: Callable[[httpx.AsyncClient, str], Awaitable[tuple[Sent, str | None]]]
) -> tuple[list[Sent], set[str | None]]:
    """``count`` submissions, spread evenly over a second."""

    async def later(client: httpx.AsyncClient, number: int) -> tuple[Sent, str | None]:
        await asyncio.sleep(number / count)
        return await send(client, f"at-once-{number}")

    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        found = await asyncio.gather(*(later(client, number) for number in range(count)))
    return [sent for sent, _ in found], {job_id for _, job_id in found}


def figures(what: str, sent: list[Sent]) -> dict[str, Any]:
    took = sorted(ms for ms, _ in sent)
    return {
        "what": what,
        "requests": len(sent),
        "p50": statistics.median(took),
        "p99": took[min(len(took) - 1, int(len(took) * 0.99))],
        "max": took[-1],
        "answers": dict(Counter(status for _, status in sent)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--each", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=50)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = []
    with (
        tempfile.TemporaryDirectory() as files,
        server(slots=1, warm_drivers="0", livy_files_dir=files) as running,
    ):
        (file := Path(files) / "job.py").write_bytes(PROGRAM)
        (job_id,) = asyncio.run(at_once(running.url, 1, submit))[1]
        wait_for("the job that holds the slot", lambda: running.get(f"/jobs/{job_id}")["state"] == "RUNNING")
        rows.append(clients(running.url, given.clients, given.each))
        for what, send in (("jobs", submit), ("batches", partial(submit_batch, file=file))):
            sent, ids = asyncio.run(at_once(running.url, given.at_once, send))
            assert len(ids) == given.at_once
            rows.append(figures(f"{given.at_once} {what} in a second", sent))
    if given.json:
        print(json.dumps(rows))
        return
    table = Table("", *(title for title in ("requests", "p50", "p99", "max", "answers")))
    for row in rows:
        table.add_row(*(f"{value:.0f}" if isinstance(value, float) else str(value) for value in row.values()))
    Console().print(table)


if __name__ == "__main__":
    main()

"""The batch program of tests/programs: its input, a plain run of it, and what a run under Slotwise is watched by."""

from __future__ import annotations

import csv
import random
import uuid
from pathlib import Path
from typing import Any

from pyarrow import dataset

from tests.acceptance.deployment import Deployment, wait_for
from tests.acceptance.plain_run import plain
from tests.acceptance.programs import PROGRAMS, cli

SCRIPT = PROGRAMS / "etl.py"
ORDERS = 2_500
REGIONS = ("north", "south", "west")
CONFIG = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "20",
    "restart-strategy.fixed-delay.delay": "100 ms",
    "slot.idle.timeout": "100 ms",
}


def write_input(folder: Path) -> None:
    dice = random.Random(3)
    tables: dict[str, tuple[tuple[str, ...], list[tuple[Any, ...]]]] = {
        "orders": (
            ("order_id", "customer_id", "product_id", "store_id", "amount"),
            [
                (n, dice.randrange(50), dice.randrange(20), dice.randrange(12), dice.randint(1, 9))
                for n in range(ORDERS)
            ],
        ),
        "customers": (("customer_id", "customer", "segment"), [(n, f"c{n}", f"s{n % 3}") for n in range(50)]),
        "products": (("product_id", "price"), [(n, 100 + n) for n in range(20)]),
        "stores": (("store_id", "region"), [(n, REGIONS[n % 3]) for n in range(10)]),
    }
    folder.mkdir(parents=True)
    for name, (header, rows) in tables.items():
        with open(folder / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([header, *rows])


def rows(output: Path) -> list[tuple[Any, ...]]:
    found = dataset.dataset(output / "orders", format="parquet", partitioning="hive").to_table()
    names = sorted(found.column_names)
    return sorted(
        tuple(map(str, row)) for row in zip(*(found[name].to_pylist() for name in names), strict=True)
    )


def plain_run(folder: Path, output: Path) -> list[str]:
    """Run it as `python etl.py`; the lines that it printed."""
    arguments = ["--input", str(folder), "--output", str(output), "--lookup-ms", "0"]
    log = output.with_suffix(".log")
    with plain(SCRIPT, arguments, log) as process:
        wait_for("the plain run has ended", lambda: process.poll() is not None)
        assert process.returncode == 0, log.read_text()[-4000:]
    return results(log.read_text(encoding="utf-8"))


def results(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("RESULT ")]


def submit(deployment: Deployment, folder: Path, output: Path, bounds: str, *more: str) -> None:
    settings = [part for name, value in CONFIG.items() for part in ("--conf", f"{name}={value}")]
    arguments = ["--input", str(folder), "--output", str(output), *more]
    said = cli(
        deployment, "submit", "--batch", "--bounds", f"etl={bounds}", *settings, str(SCRIPT), "--", *arguments
    )
    deployment.job_id = said.splitlines()[-1].split()[0]


def tasks_done(deployment: Deployment) -> int:
    """How many tasks of the running attempt are done, as clients are told."""
    job = deployment.job()
    assert job["state"] not in ("FAILED", "CANCELED"), deployment.why(job["state"])
    progress = job["vertices"][0].get("progress") or {}
    return int(progress.get("tasksDone") or 0) if job["state"] == "RUNNING" else 0


def rescale(deployment: Deployment, slots: int) -> None:
    """PUT, and the end of the rescale that comes of it: in place."""
    answer = deployment.put({"etl": (1, slots)}, f"to-{slots}-{uuid.uuid4().hex}")
    assert answer.is_success, answer.text

    def reached() -> bool:
        job = deployment.job()
        assert job["state"] == "RUNNING", f"{job['state']}: the program is too short, or failed"
        ended = all(one["terminalState"] for one in deployment.history())
        return ended and deployment.parallelism() == {"etl": slots}

    wait_for(f"the program runs at {slots}", reached)
    assert deployment.history()[0]["rung"] == "in-place", deployment.history()[0]

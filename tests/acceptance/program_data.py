"""Input of the programs in tests/programs: files that arrive one by one, equal for equal numbers, none of it late.

The event time of file n is around 2 n seconds and at most 6 s behind what came before it; the programs' watermarks are
10 s. So what a program writes does not depend on how its input was cut into batches, and a plain run can be compared
row by row with one that was rescaled and killed.
"""

from __future__ import annotations

import csv
import io
import json
import os
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

START = datetime(2026, 3, 1, tzinfo=UTC)
FILE_S, ROWS, PAGES, VISITS, VISIT_S = 2.0, 100, 10, 12, 20
# Long after everything else: it closes every window, join and timer but those of its own.
LAST_S = 100_000.0
Row = dict[str, Any]


@dataclass(frozen=True)
class Stream:
    """Input of one more shape: the rows, or lines of text, of each file, and the one that comes last."""

    rows: Callable[[int], list[Any]]
    end: Row | str

    def __call__(self, number: int) -> list[Any]:
        return self.rows(number)


def event(number: int, index: int) -> Row:
    """Row ``index`` of file ``number``, whoever asks and how often."""
    dice = random.Random(f"{number} {index}")
    second = FILE_S * number + index * FILE_S / ROWS - dice.uniform(0, 2)
    visit = f"visit-{int(second // VISIT_S)}-{dice.randrange(VISITS)}"
    page = f"page-{dice.randrange(PAGES)}"
    return row(number * ROWS + index, visit, page, dice.randrange(1000), second)


def row(identity: int, visit: str, page: str, amount: int, second: float) -> Row:
    at = START + timedelta(milliseconds=round(second * 1000))
    return {"id": identity, "visit": visit, "page": page, "amount": amount, "at": at}


def events(number: int) -> list[Row]:
    """One file: its own rows, and some of the file before it once more."""
    again = [event(number - 1, index) for index in range(0, ROWS, 17)] if number else []
    return [event(number, index) for index in range(ROWS)] + again


def orders(number: int) -> list[Row]:
    return [
        {"order_id": one["id"], "amount": one["amount"], "ordered": one["at"]}
        for one in (event(number, index) for index in range(ROWS))
    ]


def payments(number: int) -> list[Row]:
    """Two of three orders of this file are paid, within seconds; one in nine of those twice."""
    found = []
    for index in range(ROWS):
        order = event(number, index)["id"]
        for part in range(0 if order % 3 == 0 else 2 if order % 27 == 1 else 1):
            paid = event(number, index)["at"] + timedelta(milliseconds=100 + 37 * (order % 50))
            found.append({"paid_order": order, "payment": f"payment-{order}-{part}", "paid": paid})
    return found


def rides(number: int) -> list[Row]:
    """Nested records: a ride with its driver, two to five stops, and fares by kind, of which one in three is zero."""
    found = []
    for index in range(0, ROWS, 4):
        one = event(number, index)
        dice = random.Random(f"ride {one['id']}")
        driver = dice.randrange(12)
        found.append(
            {
                "ride": {"id": one["id"], "driver": {"id": driver, "city": f"city-{driver % 3}"}},
                "started": one["at"],
                "stops": [
                    {"x": dice.randrange(50), "y": dice.randrange(50), "wait_s": dice.randrange(90)}
                    for _ in range(dice.randint(2, 5))
                ],
                "fares": {kind: dice.randrange(3) * one["amount"] for kind in ("base", "tip", "toll")},
            }
        )
    return found


def last(made: Callable[[int], list[Row]]) -> list[Any]:
    if isinstance(made, Stream):
        return [made.end]
    at = START + timedelta(seconds=LAST_S)
    rows: dict[Callable[[int], list[Row]], Row] = {
        events: row(-1, "last", "page-0", 0, LAST_S),
        orders: {"order_id": -1, "amount": 0, "ordered": at},
        payments: {"paid_order": -2, "payment": "last", "paid": at},
        rides: {
            "ride": {"id": -1, "driver": {"id": 0, "city": "last"}},
            "started": at,
            "stops": [{"x": 0, "y": 0, "wait_s": 0}],
            "fares": {"base": 1},
        },
    }
    return [rows[made]]


def write(folder: Path, number: int, rows: list[Any]) -> None:
    """As other programs hand over files: written beside the folder and moved in.

    Spark takes files in the order of their times, in milliseconds: each has one of its own, or they would come late.
    """
    name = f"{number:06}"
    temporary = folder.parent / f".{folder.name}-{name}"
    if folder.name.endswith("parquet"):
        pq.write_table(pa.Table.from_pylist(rows), temporary)
    elif folder.name.endswith("csv"):
        text = io.StringIO(newline="")
        table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows({**one, "at": one["at"].isoformat()} for one in rows)
        temporary.write_text(text.getvalue(), encoding="utf-8")
    else:
        lines = (one if isinstance(one, str) else json.dumps(one, default=datetime.isoformat) for one in rows)
        temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    os.utime(temporary, (START.timestamp() + number, START.timestamp() + number))
    os.rename(temporary, folder / name)


class Feeder:
    """Writes files into folders, ``step`` after step, until it is told that this is enough."""

    def __init__(self, folders: dict[Path, Callable[[int], list[Row]]], pause_s: float, most: int) -> None:
        self.folders, self.pause_s, self.most = folders, pause_s, most
        self.files = 0
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        for folder in folders:
            folder.mkdir(parents=True)

    def write(self, files: int) -> None:
        """What is there before a program starts."""
        for _ in range(files):
            self._step()

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """No more of it, and the last file, which ends every window."""
        self._enough.set()
        if self._thread.ident is not None:
            self._thread.join()
        for folder, made in self.folders.items():
            write(folder, self.files, last(made))
        self.files += 1

    def _step(self) -> None:
        for folder, made in self.folders.items():
            write(folder, self.files, made(self.files))
        self.files += 1

    def _run(self) -> None:
        while self.files < self.most and not self._enough.wait(self.pause_s):
            self._step()

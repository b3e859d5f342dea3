"""How the driver and its sources talk: small files in the driver's work directory.

Spark calls `latestOffset` and `partitions` of a Python data source in a process of its own (the planner), before the
batch function runs in the driver, so files are all that they share. Each file has one writer, is replaced whole, and
is not durable: a driver that starts writes them anew. What must survive a crash lies in the checkpoint instead.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from app.driver.sources.errors import SourceError

_PLAN = "plan.json"
_DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class PlanNumber:
    """A plan as the sources see it: its number in this driver, and the parallelism of each vertex by id."""

    number: int
    parallelism: dict[str, int]


class ControlFile:
    """The driver's side: says what the sources should do, and reads what they did."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def publish(self, number: int, parallelism: Mapping[str, int]) -> None:
        """Put a plan into force for every partitioning that is made from now on."""
        self.directory.mkdir(parents=True, exist_ok=True)
        _replace(self.directory / _PLAN, {"number": number, "parallelism": dict(parallelism)})

    def published(self) -> PlanNumber | None:
        """The plan in force; None before the first."""
        return _read_plan(self.directory)

    def set_draining(self, draining: bool) -> None:
        """While draining, no built-in source has new data: its latest offset is where it stands."""
        flag = self.directory / _DRAINING
        if draining:
            self.directory.mkdir(parents=True, exist_ok=True)
            flag.touch()
        else:
            flag.unlink(missing_ok=True)

    def forget(self, query_key: str) -> None:
        """What the sources of a query said that is to be started again: those of its next run know nothing of it."""
        shutil.rmtree(_query_directory(self.directory, query_key), ignore_errors=True)

    def planned_number(self, vertex_id: str, query_key: str) -> int | None:
        """The number of the plan of the source's last partitioning; None if there was none, or it is not built in.

        A batch without new data from the source makes none: then this is the number of an earlier batch.
        """
        value = _read(_planned_file(self.directory, vertex_id, query_key)).get("number")
        return value if isinstance(value, int) else None

    def backlog(self, vertex_id: str, query_key: str) -> int | None:
        """Records that could be read but are in no batch yet, as of the last look; None if unknown.

        Files that were not opened yet count by their size. With a replay rate, only what is released counts.
        """
        value = _read(_status_file(self.directory, vertex_id, query_key)).get("backlog")
        return value if isinstance(value, int) else None

    def exhausted(self, vertex_id: str, query_key: str) -> bool:
        """Whether the source is finite and every record of it is in a committed batch.

        Spark asks for an offset only when the batch before is committed, and that is where this is found.
        """
        return _read(_status_file(self.directory, vertex_id, query_key)).get("exhausted") is True


@dataclass
class SourceSide:
    """The planner's side, for one source in one query."""

    directory: Path
    vertex_id: str
    vertex_name: str
    query_key: str
    _last_status: tuple[int | None, bool] | None = field(default=None, repr=False)

    def plan(self) -> tuple[int, int]:
        """The number of the plan in force, and the parallelism of this vertex in it.

        Raises:
            SourceError: there is no plan, or it does not name the vertex.
        """
        plan = _read_plan(self.directory)
        parallelism = plan.parallelism.get(self.vertex_id) if plan else None
        if plan is None or parallelism is None or parallelism < 1:
            raise SourceError(
                f"Source {self.vertex_name}: the plan in {self.directory} does not say its parallelism."
            )
        return plan.number, parallelism

    def draining(self) -> bool:
        return (self.directory / _DRAINING).exists()

    def report_plan(self, number: int) -> None:
        path = _planned_file(self.directory, self.vertex_id, self.query_key)
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, {"number": number})

    def report_status(self, *, backlog: int | None, exhausted: bool) -> None:
        """Written only when it changed: an idle source is asked for its offset a hundred times a second."""
        if self._last_status == (backlog, exhausted):
            return
        path = _status_file(self.directory, self.vertex_id, self.query_key)
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, {"backlog": backlog, "exhausted": exhausted})
        self._last_status = (backlog, exhausted)


def _query_directory(directory: Path, query_key: str) -> Path:
    return directory / "sources" / quote(query_key, safe="")


def _planned_file(directory: Path, vertex_id: str, query_key: str) -> Path:
    return _query_directory(directory, query_key) / f"{quote(vertex_id, safe='')}.planned.json"


def _status_file(directory: Path, vertex_id: str, query_key: str) -> Path:
    return _query_directory(directory, query_key) / f"{quote(vertex_id, safe='')}.status.json"


def _read_plan(directory: Path) -> PlanNumber | None:
    value = _read(directory / _PLAN)
    number, parallelism = value.get("number"), value.get("parallelism")
    if not isinstance(number, int) or not isinstance(parallelism, dict):
        return None
    return PlanNumber(number, parallelism)


def _read(path: Path) -> dict[str, object]:
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _replace(path: Path, value: object) -> None:
    # The process id keeps two planners apart for the moment in which an old one ends and a new one starts.
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(value), encoding="utf-8")
    try:
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise

"""The points of a redistribution of state at which a driver can be killed (`tests.acceptance.kills`)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from app.driver import checkpoints, repartition
from app.driver.program.asked import Asked
from app.driver.repartition import Repartitioner
from app.driver.started_query import StartedQuery
from tests.acceptance.kills import is_armed, reached_in_driver

# In the order in which a redistribution passes them.
POINTS = (
    "repartition-ordered",
    "repartition-copied",
    "repartition-begun",
    "repartition-half-written",
    "repartition-complete",
    "repartition-ready",
    "repartition-between-places",
    "repartition-replaced",
    "repartition-reported",
)
SETTLING = "repartition-settled"
"""Only if the checkpoint has a planned batch."""


def install() -> None:
    """Put the points around the functions of the driver."""
    run, copy, redistribute = Repartitioner.run, Repartitioner._copy, repartition._redistribute
    run_planned_batch, ready, take, swap = (
        StartedQuery.run_planned_batch,
        checkpoints.make_ready,
        checkpoints._take_the_place,
        Repartitioner._swap,
    )
    give = Asked.give_partitions

    def _run(self: Repartitioner) -> None:
        reached_in_driver("repartition-ordered")
        run(self)

    def _run_planned_batch(self: StartedQuery) -> None:
        run_planned_batch(self)
        reached_in_driver(SETTLING)

    def _copy(self: Repartitioner, query: Any) -> Path:
        made = copy(self, query)
        reached_in_driver("repartition-copied")
        return made

    def _redistribute(session: Any, checkpoint: Path, partitions: int) -> None:
        with _watching(checkpoint):
            redistribute(session, checkpoint, partitions)
        reached_in_driver("repartition-complete")

    def make_ready(checkpoint: Path) -> None:
        ready(checkpoint)
        reached_in_driver("repartition-ready")

    def _take_the_place(made: Path, checkpoint: Path) -> None:
        reached_in_driver("repartition-between-places")
        take(made, checkpoint)

    def _swap(self: Repartitioner, query: Any) -> None:
        swap(self, query)
        reached_in_driver("repartition-replaced")

    def give_partitions(self: Asked, shared: Any, *, ordered: bool, **how: Any) -> dict[str, int]:
        given = give(self, shared, ordered=ordered, **how)
        if ordered:
            reached_in_driver("repartition-reported")
        return given

    Repartitioner.run = _run  # type: ignore[method-assign]
    StartedQuery.run_planned_batch = _run_planned_batch  # type: ignore[method-assign]
    Repartitioner._copy = _copy  # type: ignore[method-assign]
    repartition._redistribute = _redistribute
    checkpoints.make_ready = make_ready
    checkpoints._take_the_place = _take_the_place
    Repartitioner._swap = _swap  # type: ignore[method-assign]
    Asked.give_partitions = give_partitions  # type: ignore[method-assign]


class _watching:
    """While Spark redistributes: the points at which its batch is planned, and at which half of its state is there."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        if is_armed("repartition-begun") or is_armed("repartition-half-written"):
            self._before = {file for file in self._state_files()}
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(0.002):
            if checkpoints.standing(self._checkpoint).is_whole:
                continue
            reached_in_driver("repartition-begun")
            if any(file not in self._before for file in self._state_files()):
                reached_in_driver("repartition-half-written")

    def _state_files(self) -> Iterator[Path]:
        for suffix in ("zip", "changelog"):
            yield from (self._checkpoint / "state").glob(f"*/*/*.{suffix}")

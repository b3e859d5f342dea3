"""What a driver tells of a batch that takes long, while it runs; nothing is read of a short one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.driver import batch_watcher, gateway, plans
from app.driver.batch_watcher import LONG_S, BatchWatcher, rows_of, told_of_batches
from app.driver.gateway import BatchRun, Gateway
from app.driver.plans import Plans
from app.model.analysis import queries
from app.model.measured import BATCHES_TOLD, LongBatch
from tests.unit.scheduler.driving import chain

(QUERY,) = queries(chain())
NUMBERS = {vertex.id: 2 for vertex in QUERY.flow}


class Rig:
    """A query whose clock, tasks and plan are the test's."""

    def __init__(
        self, patch: pytest.MonkeyPatch, *, place: Path | None = None, may_interrupt: bool = True
    ) -> None:
        self.s = 100.0
        for module in (gateway, plans):
            patch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.s))
        self.plans = Plans(1, NUMBERS)
        shared: Any = SimpleNamespace(plans=self.plans, may_commit=None, epoch=None, places=None)
        self.gateway = Gateway(SimpleNamespace(), shared)  # type: ignore[arg-type]
        self.asked: list[int] = []
        self.interrupted: set[int] = set()
        interrupter: Any = SimpleNamespace(has_interrupted=self.interrupted.__contains__)
        self.watcher = BatchWatcher(
            QUERY, "id", "run", self.gateway, interrupter, self._tasks, place, may_interrupt
        )

    def _tasks(self, batch_id: int) -> tuple[int, int]:
        self.asked.append(batch_id)
        return 3, 8

    def begin(self, batch_id: int) -> None:
        self.gateway._running, self.gateway._entered_at = batch_id, self.s
        self.gateway._runs[batch_id] = BatchRun(batch_id, self.plans.current, None, 0, None)

    def now(self) -> LongBatch:
        told = self.watcher.now()
        assert told is not None
        return told


def test_a_long_batch_is_told_until_its_sink_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    assert rig.watcher.now() is None
    rig.begin(4)
    rig.s += LONG_S
    assert rig.watcher.now() is None and not rig.asked
    rig.s += 1
    assert rig.now() == LongBatch(QUERY.key, "id", "run", 4, 6_000, 1, 3, 8)
    assert rig.asked == [4]
    rig.gateway.ended()
    assert rig.watcher.now() is None, "Spark commits it"
    rig.begin(5)
    assert rig.watcher.now() is None and rig.asked == [4]


def test_one_whose_plan_is_not_known_yet_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    rig.begin(4)
    rig.gateway._runs.clear()
    rig.s += 60
    assert rig.watcher.now() is None


def test_a_plan_that_waits_for_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    rig.begin(4)
    rig.s += 10
    rig.plans.change(2, dict.fromkeys(NUMBERS, 4))
    rig.s += 3
    assert (rig.now().plan_version, rig.now().waited_ms, rig.now().kept) == (1, 3_000, "")
    rig.interrupted.add(4)
    assert rig.now().kept == "once"
    assert replace(rig.watcher, may_interrupt=False).now() == replace(rig.now(), kept="sink")


def test_the_longest_are_told_with_what_keeps_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def lasting(ran_ms: int, kept: Any = "") -> Any:
        told = LongBatch(f"{ran_ms:032}", "id", "run", 1, ran_ms, 1, kept=kept) if ran_ms else None
        return SimpleNamespace(now=lambda: told)

    found = told_of_batches(
        [(lasting(6_000), "restarted"), (lasting(0), "restarted"), (lasting(9_000, "sink"), "executors")]
    )
    assert [(each.ran_ms, each.kept) for each in found] == [(9_000, "sink"), (6_000, "restarted")]
    many = [(lasting(6_000 + number), "") for number in range(BATCHES_TOLD + 50)]
    told = [each.ran_ms for each in told_of_batches(many)]  # type: ignore[arg-type]
    assert told == list(range(6_000 + BATCHES_TOLD + 49, 6_000 + 49, -1))


KAFKA = '{"words":{"0":5,"1":7}}'


@pytest.mark.parametrize(
    ("before", "after", "rows"),
    [
        ([KAFKA], ['{"words":{"0":15,"1":9}}'], 12),
        # A partition that is new begins where nobody knows.
        ([KAFKA], ['{"words":{"0":15,"1":9,"2":70}}'], 12),
        ([KAFKA, KAFKA], ['{"words":{"0":15,"1":9}}', KAFKA], 12),
        (['{"1700000000000":{"0":40}}'], ['{"1700000000000":{"0":90,"end":0}}'], 50),
        # Of files, and of Spark's own rate, nothing is known; nor is it of a source that begins.
        ([KAFKA, '{"logOffset":3}'], [KAFKA, '{"logOffset":4}'], None),
        (["7"], ["9"], None),
        (["-"], [KAFKA], None),
        ([KAFKA], [KAFKA, KAFKA], None),
        ([], [], None),
    ],
)
def test_the_rows_of_a_batch_are_between_its_offsets(
    tmp_path: Path, before: list[str], after: list[str], rows: int | None
) -> None:
    (tmp_path / "offsets").mkdir()
    for number, offsets in ((3, before), (4, after)):
        (tmp_path / "offsets" / str(number)).write_text("\n".join(["v1", "{}", *offsets]))
    assert rows_of(tmp_path, 4) == rows


def test_they_are_read_once_for_a_batch_and_are_not_known_without_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def rows(_place: Path, batch_id: int) -> int:
        read.append(batch_id)
        if batch_id == 6:
            raise FileNotFoundError
        return 12

    monkeypatch.setattr(batch_watcher, "rows_of", rows)
    rig = Rig(monkeypatch, place=tmp_path)
    found = []
    for batch_id in (5, 5, 6, 6):
        rig.begin(batch_id)
        rig.s += 6
        found.append(rig.now().rows)
    assert (found, read) == ([12, 12, None, None], [5, 6])
    assert replace(rig.watcher, place=None, _rows=(-1, None)).now() is not None and read == [5, 6]
    assert rows_of(tmp_path, 0) is None, "where the first one begins is not written down"

"""The ledger of deadlines, by states that were worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from app.scheduler.adaptive.evolve import evolve
from app.scheduler.adaptive.state import JobState
from tests.simulation.deadlines import Deadlines
from tests.simulation.truth import JobTruth
from tests.unit.scheduler.test_pending import COMMIT, ROLLBACK, waiting


def ledger_of(state: JobState, wall_ms: int = 0) -> tuple[Deadlines, list[str]]:
    """One of a job of which ``state`` is known, and what it finds."""
    found: list[str] = []
    oracles: Any = SimpleNamespace(
        world=SimpleNamespace(wall_ms=wall_ms),
        check=lambda condition, _promise, detail: None if condition else found.append(detail),
    )
    deadlines = Deadlines(oracles)
    ledger = deadlines.ledger("job")
    for one in state.pending:
        ledger.former[one.version] = dict(one.former)
        ledger.waiting.update(dict.fromkeys(one.vertices, one.version))
    return deadlines, found


def test_a_plan_by_bounds_that_wait_on_is_found_whatever_slots_there_are() -> None:
    job = waiting(ROLLBACK)
    before = job.state
    after = job.hold(4).wait(100).state
    assert after.pending == () and after.phase.target.version > before.plan_version  # type: ignore[union-attr]
    deadlines, found = ledger_of(before)
    deadlines._nothing_is_begun("job", before, evolve(after, pending=before.pending))
    assert len(found) == len(before.pending[0].former) and "waits, at most at 2" in found[0]


def test_bounds_that_are_on_their_way_do_not_come_into_force_at_their_deadline() -> None:
    state = waiting(COMMIT).state
    (one,) = state.pending
    assert one.deadline is not None
    deadlines, _ = ledger_of(state, one.deadline.at_ms)
    assert deadlines._due_commits(JobTruth(state=state)) == {one.version}
    begun = evolve(state, pending=(evolve(one, begun=True),))
    assert deadlines._due_commits(JobTruth(state=begun)) == set()

"""The ledger of deadlines, by states that were worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from app.model.requirements import Bounds, OnTimeout, Requirements
from app.model.value import evolve
from app.scheduler.adaptive.state import JobState
from tests.simulation.deadlines import Deadlines
from tests.simulation.truth import JobTruth
from tests.unit.scheduler.driving import Job
from tests.unit.scheduler.test_bounds_queue import COMMIT, ROLLBACK, waiting

PUT = "peak"
"""The mark of what ann has asked for."""


class Book:
    """A ledger, and what it finds, of a job with bounds 1 to 4 that wait since version 2."""

    def __init__(self, on_timeout: OnTimeout) -> None:
        self.found: list[str] = []
        oracles: Any = SimpleNamespace(
            check=lambda condition, _promise, detail: None if condition else self.found.append(detail),
            count=lambda _what: None,
            truth=lambda _job: self.truth,
        )
        self.deadlines, self.truth = Deadlines(oracles), JobTruth()
        self.deadlines.ledger("job").wishes[PUT] = on_timeout
        self.job = waiting(on_timeout)
        first = Job(lower=1, upper=2).run(held=2).state
        self.truth.stored[1], self.truth.state = first.requirements, first
        self.truth.attempted[PUT] = dict(self.job.state.queued[0].bounds)
        self.save(self.job.state)

    def save(self, state: JobState, wanted: Requirements | None = None) -> None:
        """``state`` becomes durable, with its requirements, or with ``wanted`` in their place."""
        wanted = wanted or state.requirements
        if wanted.version not in self.truth.stored:
            self.deadlines.stored("job", self.truth, wanted, state, alone=True)
            self.truth.stored[wanted.version] = wanted
        self.deadlines.saved("job", self.truth.state, state)
        self.truth.state = state


def test_what_waits_and_comes_into_force_is_right() -> None:
    book = Book(ROLLBACK)
    book.save(book.job.hold(3).state)
    book.save(book.job.hold(4).state)
    book.save(book.job.wait(100).state)
    book.save(book.job.applied().state)
    assert book.found == [] and book.deadlines.ledger("job").patches == []


@pytest.mark.parametrize("on_timeout", [COMMIT, ROLLBACK])
def test_so_is_what_is_asked_for_at_the_deadline(on_timeout: OnTimeout) -> None:
    book = Book(on_timeout)
    book.save(book.job.hold(3).state)
    book.save(book.job.wait(60_000).state)
    assert book.found == []


def test_bounds_that_are_applied_without_their_slots_are_found() -> None:
    book = Book(ROLLBACK)
    state = book.job.hold(4).state
    book.save(evolve(state, slots=state.slots[:3]))
    assert len(book.found) == 1 and "its slots are not there: 3" in book.found[0]


def test_bounds_that_are_lost_are_found() -> None:
    book = Book(ROLLBACK)
    book.save(evolve(book.job.state, queued=()))
    assert len(book.found) == 1 and "waits no longer, and nothing came of it" in book.found[0]


def test_bounds_that_nobody_asked_for_are_found() -> None:
    book = Book(ROLLBACK)
    held = book.job.state.requirements
    other = tuple((vertex, Bounds(1, 3)) for vertex, _ in held)
    wanted = held.following("job", other, requested_by="ann", reason=PUT)
    book.save(evolve(book.job.state, requirements=wanted), wanted)
    assert any("which nobody asked for" in one for one in book.found)


def test_what_is_dropped_at_a_deadline_in_spite_of_commit_is_found() -> None:
    book = Book(ROLLBACK)
    book.deadlines.ledger("job").patches[0].on_timeout = COMMIT
    book.save(book.job.wait(60_000).state)
    assert any("drops what does not wait" in one for one in book.found)

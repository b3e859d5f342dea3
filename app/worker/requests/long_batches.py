"""The micro-batches that take long, while they run: how far each is, and what waits for its end, in words too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from app.load.long_batches import SeenLongBatch
from app.load.sentences import rows_in_words
from app.model.analysis import Query, queries
from app.model.measured import KeptReason
from app.model.plan import Plan, change_in_words
from app.model.rescale import RescaleRecord
from app.model.sentences import duration_in_words
from app.scheduler.adaptive.state import JobState, Rescaling, Restarting, StopWithSavepoint
from app.worker.views import JobView

SILENT_MS: Final = 15_000
"""A driver tells of a batch that takes long every five seconds."""


Waiting = Literal["RESCALE", "RESTART", "STOP"]
"""What waits for the end of a batch."""


@dataclass(frozen=True, slots=True)
class ExplainedBatch:
    """A batch that runs, with the name of its query. ``waiting``: None if nothing waits for it, and ``waiting_words``
    says it as a clause. ``rescale``: the record of what waits.

    ``interruption_ms``: from when on it may be interrupted; None: never, or that is not known. ``interruption_words``
    says that and when it is not, as a sentence.
    """

    seen: SeenLongBatch
    name: str
    waiting: Waiting | None = None
    waiting_words: str = ""
    rescale: RescaleRecord | None = None
    interruption_ms: int | None = None
    interruption_words: str = ""

    def in_words(self, subject: str, now_ms: int) -> list[str]:
        told = self.seen.told
        rows = "" if told.rows is None else f", of {rows_in_words(told.rows)},"
        tasks = f", with {told.tasks_done} of {told.tasks_known} tasks done" if told.tasks_known else ""
        waits = f"; {self.waiting_words} waits for its end" if self.waiting else ""
        ran = duration_in_words(now_ms - self.seen.since_ms)
        sentence = f"{subject} has been in batch {told.batch_id}{rows} for {ran}{tasks}{waits}."
        return [sentence, self.interruption_words] if self.interruption_words else [sentence]


def long_batches(view: JobView, now_ms: int) -> list[ExplainedBatch]:
    """Those of the attempt that runs, the longest first."""
    seen = view.long_batches
    if not seen:
        return []
    by_sink = {query.key: query for query in queries(view.state.graph)}
    return [
        _long_batch(view.state, each, query, now_ms)
        for each in seen
        if (query := by_sink.get(each.told.query)) is not None
    ]


def long_batch_sentences(view: JobView, now_ms: int) -> list[str]:
    found = long_batches(view, now_ms)
    is_only = sum(vertex.is_sink for vertex in view.state.graph.vertices) == 1
    words = []
    for each in found:
        words += each.in_words("The job" if is_only else f"The query of {each.name}", now_ms)
    silent_ms = now_ms - max((each.seen.seen_ms for each in found), default=now_ms)
    if silent_ms > SILENT_MS:
        words.append(
            f"The driver was last heard of {duration_in_words(silent_ms)} ago: how far its batches are since then is "
            "not known."
        )
    return words


def _long_batch(state: JobState, seen: SeenLongBatch, query: Query, now_ms: int) -> ExplainedBatch:
    name, record = query.sink.name, state.timeline.open
    match state.phase:
        case Rescaling(target=target) if _waits(state, target, seen, query):
            due_ms = _due_ms(state, seen)
            return ExplainedBatch(
                seen,
                name,
                "RESCALE",
                _rescale_in_words(state, target, query),
                record,
                due_ms,
                _interruption_in_words(state, seen, name, due_ms, now_ms),
            )
        case Restarting(stopped=False, kill=False, failures=()):
            return ExplainedBatch(seen, name, "RESTART", "a restart", record)
        case StopWithSavepoint():
            return ExplainedBatch(seen, name, "STOP", "the stop")
    return ExplainedBatch(seen, name)


def _waits(state: JobState, target: Plan, seen: SeenLongBatch, query: Query) -> bool:
    """Whether ``target`` changes the query, and its batch runs at an older plan. The driver says so when it tells of
    the batch the next time; on a cluster its plan may also be a part of ``target``."""
    if seen.waited_since_ms is not None:
        return True
    return seen.told.plan_version < target.version and bool(_changed(state, target, query))


def _changed(state: JobState, target: Plan, query: Query) -> dict[str, int]:
    assert state.plan is not None
    before, own = dict(state.plan.parallelism), {vertex.id for vertex in query.flow}
    return {
        vertex_id: number
        for vertex_id, number in target.parallelism
        if vertex_id in own and before.get(vertex_id) != number
    }


def _rescale_in_words(state: JobState, target: Plan, query: Query) -> str:
    changed = _changed(state, target, query)
    if len(numbers := set(changed.values())) == 1:
        return f"the rescale to {numbers.pop()}"
    assert state.plan is not None
    words = change_in_words(state.graph, state.plan.parallelism, changed.items())
    return f"the rescale of {words}" if words else "the rescale"


def _may_interrupt(state: JobState) -> bool:
    return state.options.rescale_max_wait_ms > 0 and state.options.batch_interruptible is not False


def _due_ms(state: JobState, seen: SeenLongBatch) -> int | None:
    """From when on the batch may be interrupted."""
    since_ms = seen.waited_since_ms
    if since_ms is None or seen.told.kept or not _may_interrupt(state):
        return None
    return since_ms + state.options.rescale_max_wait_ms


def _interruption_in_words(
    state: JobState, seen: SeenLongBatch, name: str, due_ms: int | None, now_ms: int
) -> str:
    told = seen.told
    batch = f"Batch {told.batch_id} of {name}"
    if not _may_interrupt(state):
        return (
            f"{batch} is not interrupted: slotwise.rescale.max-wait or slotwise.batch.interruptible says so."
        )
    if told.kept:
        return f"{batch} is not interrupted: {_KEPT[told.kept]}."
    if due_ms is None:
        return ""
    if now_ms < due_ms:
        return (
            f"{batch} is interrupted in {duration_in_words(due_ms - now_ms)}, unless half of its tasks are done by "
            "then (slotwise.rescale.max-wait)."
        )
    if now_ms - seen.seen_ms > SILENT_MS:
        return ""
    if told.tasks_done < told.tasks_known - told.tasks_done:
        return f"{batch} is being interrupted."
    return f"{batch} is not interrupted: {'half of its tasks are done' if told.tasks_known else 'it has no task yet'}."


_KEPT: Final[dict[KeptReason, str]] = {
    "sink": "its sink is not known to take a batch once (slotwise.batch.interruptible)",
    "once": "it was interrupted once",
    "executors": "executors are still to come for the rescale",
    "restarted": "it is the first one since its query was restarted",
}

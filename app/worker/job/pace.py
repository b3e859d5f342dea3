"""The speed of the queries of a job at each of its latest plans, by which a rescale is judged."""

from __future__ import annotations

from collections import deque

from app.model.job_state.changes import Pace
from app.model.protocol import Report
from app.scheduler.adaptive.blame import LEAST_BATCHES, MOST_BATCHES, WARM_UP_BATCHES

_PLANS_KEPT = 4


def pace_of(report: Report) -> Pace | None:
    """The pace of a batch at a whole plan after which more rows waited at the sources.

    None if none waited or it is not known: how long such a batch takes depends on what there was to read.
    """
    busy_ms = report.at_ms - report.started_ms
    if (
        not report.whole_plan
        or not report.backlog_rows
        or report.reprocessed
        or report.input_rows <= 0
        or busy_ms <= 0
    ):
        return None
    return Pace(report.query_id, report.input_rows, busy_ms)


class PaceMeter:
    """Remembers the latest batches of each query at each plan. Not durable: what is needed later goes with an event."""

    def __init__(self) -> None:
        self._batches: dict[int, dict[str, deque[Pace]]] = {}

    def note(self, report: Report) -> None:
        """Take note of a committed batch."""
        pace = pace_of(report)
        if pace is None:
            return
        queries = self._batches.setdefault(report.plan_version, {})
        # As many as are left out later stand at the front for the warm-up.
        queries.setdefault(report.query_id, deque(maxlen=WARM_UP_BATCHES + MOST_BATCHES)).append(pace)
        for old in sorted(self._batches)[:-_PLANS_KEPT]:
            del self._batches[old]

    def before(self, plan_version: int) -> tuple[Pace, ...]:
        """The pace of each query at the plan that was in force before; nothing unless each was measured well enough."""
        older = [version for version in self._batches if version < plan_version]
        if not older:
            return ()
        found = []
        for query_id, paces in sorted(self._batches[max(older)].items()):
            counted = list(paces)[WARM_UP_BATCHES:]
            if len(counted) < LEAST_BATCHES:
                return ()
            rows, busy_ms = sum(one.rows for one in counted), sum(one.busy_ms for one in counted)
            found.append(Pace(query_id, rows, busy_ms))
        return tuple(found)

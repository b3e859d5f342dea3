"""Rendered rescale records. A closed record never changes, so it is rendered once and its bytes are kept."""

from __future__ import annotations

from collections.abc import Callable

from app.model.jobgraph import JobGraph
from app.model.rescale import RescaleRecord

_MAX_RECORDS = 4096

_Stamp = tuple[int | None, int | None, int | None]


class RecordCache:
    """At most `_MAX_RECORDS` closed records, the least lately used ones dropped first."""

    def __init__(self, render: Callable[[RescaleRecord, JobGraph], bytes]) -> None:
        self._render = render
        self._kept: dict[str, tuple[_Stamp, bytes]] = {}

    def bytes_of(self, job_id: str, record: RescaleRecord, graph: JobGraph) -> bytes:
        """The record of a job as the history shows it."""
        if record.is_open:
            return self._render(record, graph)
        key = job_id + record.uuid
        kept = self._kept.pop(key, None)
        stamp = (record.end_ms, record.output_gap_ms, record.reprocessed_records)
        if kept is None or kept[0] != stamp:
            kept = (stamp, self._render(record, graph))
            if len(self._kept) >= _MAX_RECORDS:
                del self._kept[next(iter(self._kept))]
        self._kept[key] = kept
        return kept[1]

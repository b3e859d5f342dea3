"""What every handler works with."""

from __future__ import annotations

from dataclasses import dataclass

from app.api.info import ServerInfo
from app.api.record_cache import AnswerCache, EndedJobCache, RecordCache
from app.worker.clock import Clock
from app.worker.facade import ControlPlaneFacade


@dataclass(frozen=True, slots=True)
class Context:
    control_plane: ControlPlaneFacade
    info: ServerInfo
    clock: Clock
    records: RecordCache
    answers: AnswerCache
    ended_jobs: EndedJobCache

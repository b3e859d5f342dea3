"""What every handler works with."""

from __future__ import annotations

from dataclasses import dataclass

from app.api.forwarding import Forwarding
from app.api.info import ServerInfo
from app.api.record_cache import AnswerCache, EndedJobCache, RecordCache
from app.worker.clock import Clock
from app.worker.control_planes import ControlPlanes
from app.worker.facade import ControlPlaneFacade


@dataclass(frozen=True, slots=True)
class Context:
    """``cluster`` and ``forwarding``: None where no other control plane can share the jobs."""

    control_plane: ControlPlaneFacade
    info: ServerInfo
    clock: Clock
    records: RecordCache
    answers: AnswerCache
    ended_jobs: EndedJobCache
    cluster: ControlPlanes | None = None
    forwarding: Forwarding | None = None

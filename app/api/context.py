"""What every handler works with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.api.record_cache import RecordCache
from app.worker.clock import Clock
from app.worker.facade import ControlPlaneFacade


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """This server: its version, the slots it offers, when it started (epoch ms), and settings fit to be shown."""

    version: str
    slots: int
    started_ms: int
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Context:
    control_plane: ControlPlaneFacade
    info: ServerInfo
    clock: Clock
    records: RecordCache

"""The records of an attempt: its row, its assignment file, and the last word of its driver."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from app.cluster.ports import DriverRef
from app.durablefiles import read_regular, write_whole
from app.model.protocol import OUTCOME_FILE, DriverSpec, Registration, Report, outcome_document
from app.model.sparkui import LOOPBACK
from app.model.status import AttemptEnding
from app.store.writes import Attempt

REPORT: Final = TypeAdapter(Report)
"""Reads one from JSON, and passes over what a newer driver says besides."""

_HOST_CHARS = 255
_VERSION_CHARS = 64
_UI_URL = re.compile(rf"http://{re.escape(LOOPBACK)}:[0-9]{{1,5}}\Z")
_MOST_BYTES = 16 << 20  # a report is far smaller, and drivers write this one


def ref_of(attempt: Attempt) -> DriverRef:
    """How the driver process of an attempt is found again."""
    return DriverRef(
        attempt.driver_id, attempt.pid or 0, attempt.pid_started_at or 0.0, attempt.lock_file or ""
    )


def described(attempt: Attempt, told: Registration) -> Attempt:
    """``attempt`` with what its driver says of itself, as far as it can be so: people follow the link."""
    return dataclasses.replace(
        attempt,
        host=told.host[:_HOST_CHARS],
        spark_version=told.spark_version[:_VERSION_CHARS],
        ui_url=told.ui_url if _UI_URL.match(told.ui_url) else None,
    )


@dataclass(frozen=True, slots=True)
class Ended:
    """How an attempt ended, and if it failed, why: in a sentence without secrets."""

    ending: AttemptEnding
    why: str | None = None


def hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def write_spec(spec: DriverSpec) -> Path:
    """Write the assignment for the driver, readable by its owner only: it has a secret."""
    # The epoch in the name: one who was overtaken and does not know it yet must not replace the owner's assignment.
    target = Path(spec.work_dir) / f"spec-{spec.epoch}.json"
    write_json(target, dataclasses.asdict(spec))
    return target


def write_outcome(work_dir: Path, report: Report) -> None:
    """Keep the last word of a driver until its process is gone.

    Raises:
        OSError: it is not kept.
    """
    write_json(work_dir / OUTCOME_FILE, outcome_document(report))


def read_outcome(work_dir: Path) -> Report | None:
    """The last word of a driver, if it had one and it can be read."""
    try:
        return REPORT.validate_json(read_regular(work_dir / OUTCOME_FILE, _MOST_BYTES))
    except (OSError, ValueError):
        return None


def write_json(target: Path, value: object) -> None:
    """Readable by its owner only."""
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, json.dumps(value).encode(), mode=0o600)

"""What control planes log in the simulated world."""

from __future__ import annotations

import sys
import traceback
from typing import Any

import structlog

from tests.simulation.plane import Killed
from tests.simulation.truth import Violation
from tests.simulation.world import World


def listen(world: World) -> None:
    """What the control plane logs is part of the story; a defect that it reports is a violation."""

    def note(_logger: object, method: str, event: dict[str, Any]) -> Any:
        error = event.get("exc_info")
        if error is True:
            error = sys.exc_info()[1]
        if error is not None and method in ("error", "exception") and not isinstance(error, Killed):
            text = f"{event['event']}: {error!r}"
            if world.tracing:
                text += "".join(traceback.format_exc())
            world.oracles.broken(Violation("no defect", text))
        if world.tracing:
            world.tell("log: " + " ".join(f"{k}={v}" for k, v in event.items()))
        raise structlog.DropEvent

    structlog.configure(
        processors=[note],
        cache_logger_on_first_use=False,
        wrapper_class=structlog.make_filtering_bound_logger(0),
    )

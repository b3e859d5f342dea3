"""The part of the transition table that is about a new version of a job; `table` has the rest, and the rules."""

from __future__ import annotations

from typing import Final

VERSION_EDGES: Final[dict[str, dict[str, str]]] = {
    "WaitingForResources": {
        "stay": "the new version waits for an attempt that is being killed, or for slots",
        "CreatingExecutionGraph": "nothing is alive, and the slots that the new version desires are there",
    },
    "CreatingExecutionGraph": {"WaitingForResources": "the attempt of the version before is killed"},
    "RetryingExecutionGraphCreation": {"WaitingForResources": "the new version is tried at once"},
    "Executing": {
        "Restarting": "the attempt is stopped at a batch boundary; then the new version is started"
    },
    "Rescaling": {
        "Restarting": "the attempt is stopped at a batch boundary; then the new version is started"
    },
    "Restarting": {
        "stay": "the new version is started when nothing of the attempt is alive",
        "WaitingForResources": "nothing is alive: the new version is not kept waiting by the backoff",
    },
}
"""Phase -> {phase that can follow a `VersionRequested`: when it does}. In any other phase it is refused."""

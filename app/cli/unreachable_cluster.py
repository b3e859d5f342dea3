"""What a command that waits says while the server cannot see its cluster: for so long nothing happens."""

from __future__ import annotations

import time

from app.cli.client import Client
from app.cli.output import warn

LOOK_EVERY_S = 10.0


class ClusterWatch:
    """Says once that a job waits for the cluster to be seen, and once that it does not any more."""

    def __init__(self, client: Client, job_id: str, *, every_s: float = LOOK_EVERY_S) -> None:
        self._client = client
        self._job_id = job_id
        self._every_s = every_s
        self._look_at_s = time.monotonic() + every_s
        self._is_told = False

    def turn(self) -> None:
        """Look, if it is time to."""
        now_s = time.monotonic()
        if now_s < self._look_at_s:
            return
        self._look_at_s = now_s + self._every_s
        supply = self._client.get(f"/jobs/{self._job_id}/explanation").get("supply") or {}
        is_unreachable = bool(supply.get("outOfSight"))
        if is_unreachable and not self._is_told:
            why = " ".join(supply.get("why") or ["The cluster cannot be asked what it has."])
            warn(f"Waiting on: {why} What was asked for is kept; Ctrl-C does not undo it.")
        if self._is_told and not is_unreachable:
            warn("Waiting on: the cluster can be asked again.")
        self._is_told = is_unreachable

"""The loop: read, decide, declare. Lower bounds do not change, and bounds of other clients are never
overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from app.autoscaler.decide import decide
from app.autoscaler.policy import Policy
from app.autoscaler.reading import Json, look
from app.autoscaler.seen import NO_MEMORY, Action, Decision, Memory, Snapshot
from app.model.status import TERMINAL_STATUSES

_LONGEST_PAUSE_MS: Final = 300_000
_REASON_CHARS: Final = 1_000


class Refusal(Exception):
    """The server refused a request, or none answers. ``status`` is that of HTTP, None without an answer."""

    def __init__(self, status: int | None, told: str) -> None:
        super().__init__(told)
        self.status = status


class Server(Protocol):
    """What the loop needs of a client. Both raise `Refusal`."""

    def get(self, path: str) -> tuple[Json, str | None]:
        """The decoded answer, and its ETag."""

    def put(self, path: str, body: Json, *, if_match: str | None, reason: str) -> None:
        """Declare ``body``."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What came of one turn. ``trouble``: why the server did not do what was asked. ``pause_ms``: until the next.
    ``ended``: the status in which the job has ended."""

    pause_ms: int
    seen: Snapshot | None = None
    decision: Decision | None = None
    has_declared: bool = False
    trouble: str | None = None
    ended: str | None = None


@dataclass
class Loop:
    """Of one job. ``decide`` may be another rule. ``memory`` is what the decisions of the past leave to those of the
    future."""

    server: Server
    job_id: str
    policy: Policy
    decide: Callable[[Snapshot, Policy], Decision] = decide
    memory: Memory = NO_MEMORY
    _refused: int = field(default=0, init=False)

    def turn(self) -> Turn:
        """Look once, and declare what is decided.

        A refusal (another was faster, the job does not allow it now, the server has too much to do or is away) lets it
        wait for longer and longer, and then look anew: nothing is declared by what was seen before.

        Raises:
            NotScalable: the job is of a kind that is not scaled.
            Refusal: there is no such job, or the server does not let us in.
        """
        try:
            details, _ = self.server.get(f"/jobs/{self.job_id}")
        except Refusal as refusal:
            if refusal.status in (401, 403, 404):
                raise
            return self._wait(refusal)
        if details["state"] in TERMINAL_STATUSES:
            return Turn(self.policy.interval_ms, ended=details["state"])
        try:
            done = self._turn(details)
        except Refusal as refusal:
            return self._wait(refusal)
        self._refused = 0
        return done

    def _wait(self, refusal: Refusal) -> Turn:
        self._refused += 1
        pause_ms = min(_LONGEST_PAUSE_MS, self.policy.interval_ms * 2 ** min(self._refused, 20))
        return Turn(pause_ms, trouble=str(refusal))

    def _turn(self, details: Json) -> Turn:
        pause_ms = self.policy.interval_ms
        path = f"/jobs/{self.job_id}/resource-requirements"
        requirements, etag = self.server.get(path)
        if not requirements:
            raise Refusal(None, "The program has not started a query yet, so it has no vertices.")
        if set(requirements) != {each["id"] for each in details["vertices"]}:
            raise Refusal(None, "A new version of the job came between two requests.")
        seen = look(
            lambda path: self.server.get(path)[0],
            details,
            requirements,
            window_ms=self.policy.window_ms,
            memory=self.memory,
        )
        decision = self.decide(seen, self.policy)
        if decision.action is not Action.SCALE:
            self.memory = decision.memory
            return Turn(pause_ms, seen, decision)
        self.server.put(
            path,
            declared(requirements, decision.upper),
            if_match=etag,
            reason=f"autoscaler: {decision.reason}"[:_REASON_CHARS],
        )
        # Not of what the server has refused.
        self.memory = decision.memory
        return Turn(pause_ms, seen, decision, has_declared=True)


def declared(requirements: Mapping[str, Any], upper: Mapping[str, int]) -> Json:
    """The requirements with other upper bounds."""
    return {
        vertex_id: {
            "parallelism": {
                "lowerBound": each["parallelism"]["lowerBound"],
                "upperBound": upper.get(vertex_id, each["parallelism"]["upperBound"]),
            }
        }
        for vertex_id, each in requirements.items()
    }

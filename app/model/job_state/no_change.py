"""The decisions to change nothing, as the state of a job stores them; `no_change` has the rules."""

from __future__ import annotations

from enum import StrEnum

from app.model.value import value


class NoChangeReason(StrEnum):
    SLOTS_MISSING = "slots-missing"
    DEADLINE = "deadline"
    CAP = "cap"
    COOLDOWN = "cooldown"
    STABILIZATION = "stabilization"
    CLUSTER_UNREACHABLE = "cluster-unreachable"
    TAKEN_BACK = "taken-back"
    REPARTITION_REFUSED = "repartition-refused"
    BOUNDS_MET = "bounds-met"


@value
class NoChange:
    """The scheduler has looked ``count`` times and left the job as it is for one ``reason``; ``message``: a sentence.

    ``version``: that of the requirements, ``policy_version``: that of the scaling policy, ``plan_version``: that of the
    newest plan. With another one of these the count begins anew.
    """

    reason: NoChangeReason
    message: str
    version: int
    plan_version: int
    count: int
    first_ms: int
    last_ms: int
    policy_version: int = 1

    @property
    def versions(self) -> tuple[int, int, int]:
        return self.version, self.policy_version, self.plan_version

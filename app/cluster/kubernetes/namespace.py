"""What the API of Kubernetes says of a namespace, and what follows for the slots: a pure reading of its documents.

A slot is a pod with one executor of one core. Nothing in Kubernetes says how many of them would find room: nodes are
shared with others, may be tainted, and may come when they are asked for. So the slots are a number that the settings
declare, less what is known to be impossible:

* A ResourceQuota of the namespace leaves room for fewer. Free slots beyond that are withheld at once. Those that jobs
  hold are taken away when it has been so for a while, for the quota's count of what is used lags behind.
* Pods that no node takes (`PodScheduled` is false) for a while say that there is no room for more than those that have
  a node. That is believed for some time, and then tried again: a node may have come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from app.model.kubenames import ATTEMPT_LABEL, JOB_LABEL, parse_quantity

RETRY_S = 300.0
"""For how long it is believed that there is no room for more pods; twice as long each time that it proves true,"""

LONGEST_RETRY_S = 3600.0
"""but no longer than this."""


class NotFromTheApi(ValueError):
    """The document is not one of the API's; the message is a sentence."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What one executor's pod asks for: cores, bytes, and its limit of cores if it has one."""

    cpu: Fraction
    memory_bytes: int
    cpu_limit: Fraction | None = None

    def of(self, resource: str) -> Fraction | None:
        """How much of a quota's resource a pod takes; None if that is not known, or nothing."""
        match resource:
            case "pods" | "count/pods":
                return Fraction(1)
            case "cpu" | "requests.cpu":
                return self.cpu
            case "memory" | "requests.memory" | "limits.memory":
                return Fraction(self.memory_bytes)
            case "limits.cpu":
                return self.cpu_limit
            case _:
                return None


@dataclass(frozen=True, slots=True)
class Pod:
    """An executor's pod. ``unschedulable``: why no node takes it, in the scheduler's words; None if one has."""

    uid: str
    name: str
    job_id: str
    attempt: str
    phase: str
    placed: bool
    unschedulable: str | None
    ending: bool

    @property
    def is_over(self) -> bool:
        """Whether its processes have ended: only the object is left, and no quota counts it."""
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Quota:
    """A ResourceQuota: the most of each resource, and what is used."""

    name: str
    hard: Mapping[str, Fraction]
    used: Mapping[str, Fraction]


@dataclass(frozen=True, slots=True)
class Experience:
    """What earlier looks have taught. Times are seconds of a monotonic clock.

    ``waiting``: since when each pod finds no node; ``blamed``: those of them that ``cap`` allows for. ``cap``: how many
    pods had found nodes when others did not, believed until ``cap_until_s``; ``tried`` is the last one. ``fits``: how
    many the quotas have let in; ``less_since_s`` and ``less``: since when it is fewer, and the most of them since.
    """

    waiting: Mapping[str, float] = field(default_factory=dict)
    blamed: frozenset[str] = frozenset()
    cap: int | None = None
    cap_until_s: float = 0.0
    retry_s: float = RETRY_S
    tried: int | None = None
    fits: int | None = None
    less_since_s: float | None = None
    less: int = 0


@dataclass(frozen=True, slots=True)
class Room:
    """The slots of a namespace, how many of them are withheld, and why there are fewer than declared."""

    slots: int
    withheld: int
    why: str = ""


def read_pods(document: Any) -> tuple[Pod, ...]:
    """The pods of a PodList that have the label of a job.

    Raises:
        NotFromTheApi: it is some other document.
    """
    return tuple(_pod(item) for item in _items(document, "PodList") if JOB_LABEL in _labels(item))


def read_quotas(document: Any) -> tuple[Quota, ...]:
    """The quotas of a ResourceQuotaList that count pods of executors: pods with requests, and without a deadline.

    Quotas of priority classes are left out: which one the pods have is not known here.

    Raises:
        NotFromTheApi: it is some other document.
    """
    return tuple(
        Quota(
            str(item["metadata"]["name"]),
            _quantities(item.get("status", {}).get("hard", {})),
            _quantities(item.get("status", {}).get("used", {})),
        )
        for item in _items(document, "ResourceQuotaList")
        if _counts_executors(item.get("spec", {}))
    )


def let_in(quotas: Sequence[Quota], pods: Sequence[Pod], demand: Demand) -> int | None:
    """How many executors the quotas let in beside the pods of others; None if no quota counts them."""
    ours = sum(1 for pod in pods if not pod.is_over)
    most: list[int] = []
    for quota in quotas:
        for resource, hard in quota.hard.items():
            each = demand.of(resource)
            if each:
                others = max(Fraction(0), quota.used.get(resource, Fraction(0)) - ours * each)
                most.append(max(0, int((hard - others) / each)))
    return min(most) if most else None


def settle(
    pods: Sequence[Pod],
    quotas: Sequence[Quota],
    before: Experience,
    *,
    declared: int,
    demand: Demand,
    patience_s: float,
    now_s: float,
) -> tuple[Room, Experience]:
    """The room that there is, and what has been learnt."""
    fitting = let_in(quotas, pods, demand)
    if before.fits is None:
        # At first as much as declared: jobs of before a restart hold their slots, and the count may lag behind now too.
        before = replace(before, fits=declared)
    learnt = _mind_quotas(before, declared if fitting is None else fitting, patience_s, now_s)
    learnt = _mind_nodes(learnt, pods, patience_s, now_s)
    slots = min(declared, learnt.fits or 0, declared if learnt.cap is None else learnt.cap)
    withheld = 0 if fitting is None else max(0, slots - fitting)
    return Room(slots, withheld, _why(slots - withheld, declared, pods, learnt)), learnt


def _mind_quotas(before: Experience, fitting: int, patience_s: float, now_s: float) -> Experience:
    """More room is believed at once, less of it when it has been so for a while."""
    if before.fits is None or fitting >= before.fits:
        return replace(before, fits=fitting, less_since_s=None, less=0)
    since_s = now_s if before.less_since_s is None else before.less_since_s
    most = max(before.less, fitting)
    if now_s - since_s >= patience_s:
        return replace(before, fits=most, less_since_s=None, less=0)
    return replace(before, less_since_s=since_s, less=most)


def _mind_nodes(before: Experience, pods: Sequence[Pod], patience_s: float, now_s: float) -> Experience:
    unplaced = [pod.uid for pod in pods if pod.unschedulable is not None and not pod.ending]
    waiting = {uid: before.waiting.get(uid, now_s) for uid in unplaced}
    blamed = before.blamed & waiting.keys()
    placed = sum(1 for pod in pods if pod.placed and not pod.ending and not pod.is_over)
    stuck = {uid for uid, since_s in waiting.items() if now_s - since_s >= patience_s}
    if stuck - blamed:
        # Those that are told apart have been allowed for: a job that gives pods up leaves room for others.
        retry_s = before.retry_s
        if before.cap is None:
            in_vain = before.tried is not None and placed <= before.tried
            retry_s = min(LONGEST_RETRY_S, 2 * retry_s) if in_vain else RETRY_S
        return replace(
            before,
            waiting=waiting,
            blamed=frozenset(stuck),
            cap=placed,
            cap_until_s=now_s + retry_s,
            retry_s=retry_s,
            tried=placed,
        )
    if before.cap is not None and now_s >= before.cap_until_s:
        # Pods that wait still have another while.
        return replace(before, waiting=dict.fromkeys(waiting, now_s), blamed=frozenset(), cap=None)
    return replace(before, waiting=waiting, blamed=blamed)


def _why(slots: int, declared: int, pods: Sequence[Pod], learnt: Experience) -> str:
    if slots >= declared:
        return ""
    if learnt.cap is not None and learnt.cap <= slots:
        said = next((pod.unschedulable for pod in pods if pod.unschedulable), "pods found no node")
        return f"no node has room for more: {said}"
    return "a ResourceQuota of the namespace lets no more pods in"


def _items(document: Any, kind: str) -> Sequence[Mapping[str, Any]]:
    try:
        if document["kind"] != kind:
            raise NotFromTheApi(f"The answer is a {document['kind']}, not a {kind}.")
        # An empty list may be null.
        items: Sequence[Mapping[str, Any]] = document["items"] or ()
        for item in items:
            _labels(item)
    except (KeyError, TypeError, AttributeError) as error:
        raise NotFromTheApi(f"The answer is not a {kind} of the Kubernetes API.") from error
    return items


def _labels(item: Mapping[str, Any]) -> Mapping[str, str]:
    return item["metadata"].get("labels") or {}


def _pod(item: Mapping[str, Any]) -> Pod:
    try:
        metadata, status = item["metadata"], item.get("status") or {}
        conditions = {one["type"]: one for one in status.get("conditions") or ()}
        scheduled = conditions.get("PodScheduled", {})
        waits = scheduled.get("status") == "False" and status["phase"] == "Pending"
        return Pod(
            uid=str(metadata["uid"]),
            name=str(metadata["name"]),
            job_id=str(_labels(item)[JOB_LABEL]),
            attempt=str(_labels(item).get(ATTEMPT_LABEL, "")),
            phase=str(status["phase"]),
            placed=bool((item.get("spec") or {}).get("nodeName")),
            unschedulable=str(scheduled.get("message") or scheduled.get("reason", "")) if waits else None,
            ending="deletionTimestamp" in metadata,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise NotFromTheApi("A pod in the answer lacks its name, uid or phase.") from error


def _quantities(values: Mapping[str, Any]) -> Mapping[str, Fraction]:
    try:
        return {str(name): parse_quantity(str(value)) for name, value in values.items()}
    except (ValueError, AttributeError) as error:
        raise NotFromTheApi(f"A quota in the answer cannot be read: {error}") from error


def _counts_executors(spec: Mapping[str, Any]) -> bool:
    scopes = set(spec.get("scopes") or ())
    selected = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    scopes |= {one.get("scopeName") for one in selected}
    return scopes <= {"NotTerminating", "NotBestEffort"}

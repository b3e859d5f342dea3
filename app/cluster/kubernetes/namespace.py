"""What Kubernetes says of a namespace, and how many slots follow from it, also when pods find no node. Pure functions.

A slot is a pod with one executor of one core. Nothing in Kubernetes says how many of them would find room: nodes are
shared with others, may be tainted, and may come when they are asked for. So the slots are a number that the settings
declare, less what is known to be impossible:

* A ResourceQuota of the namespace leaves room for fewer. Free slots beyond that are withheld at once. Those that jobs
  hold are taken away when it has been so for a while, for the quota's count of what is used lags behind.
* Pods that no node takes (`PodScheduled` is false), or whose image cannot be pulled where they are, for a while say
  that there is no room for more than the others. That is believed for some time, and then tried again: a node may
  have come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from app.model.kubenames import ATTEMPT_LABEL, JOB_LABEL, parse_quantity
from app.model.masking import masked_text

RETRY_S = 300.0
"""For how long it is believed that there is no room for more pods; twice as long each time that it proves true,"""

LONGEST_RETRY_S = 3600.0
"""but no longer than this, nor twice as long while a job waits for the slots that it cannot do without."""

# Why a container waits that will not start by itself, as the kubelet says it. "ContainerCreating" is none of them.
_NO_IMAGE = {
    "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ImageInspectError", "ErrImageNeverPull",
    "RegistryUnavailable", "SignatureValidationFailed",
}  # fmt: skip
_NO_CONTAINER = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_MOST_WORDS = 400


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
    """An executor's pod. ``unschedulable``: why no node takes it, in the scheduler's words; None if one has.

    ``refused``: why its containers cannot start on its node, such as an image that cannot be pulled; None if they may
    start yet. ``started``: one of them has, and may have ended.
    """

    uid: str
    name: str
    job_id: str
    attempt: str
    phase: str
    placed: bool
    unschedulable: str | None
    ending: bool
    refused: str | None = None
    started: bool = False

    @property
    def hindered(self) -> str | None:
        """Why it does not become an executor; None if nothing is known to be in its way."""
        return self.unschedulable if self.unschedulable is not None else self.refused

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

    ``waiting``: since when each pod finds no node, or is refused there; ``blamed``: those of them that ``cap`` allows
    for. ``cap``: how many pods had found nodes when others did not, believed until ``cap_until_s``; ``tried`` is the
    last one, ``words`` why, as the pod ``words_of`` said it. ``refused``: pods that were refused, which a kubelet tries
    again. ``fits``: how many the quotas have let in; ``less_since_s`` and ``less``: since when it is fewer, and the
    most of them since.
    """

    waiting: Mapping[str, float] = field(default_factory=dict)
    blamed: frozenset[str] = frozenset()
    cap: int | None = None
    cap_until_s: float = 0.0
    retry_s: float = RETRY_S
    tried: int | None = None
    words: str = ""
    words_of: str = ""
    refused: frozenset[str] = frozenset()
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
    probe: Pod | None = None,
    is_waited_for: bool = False,
) -> tuple[Room, Experience]:
    """The room that there is, and what has been learnt. ``probe``: the server's own pod that asks for room; it takes
    what an executor may have. ``is_waited_for``: a job waits for slots that it cannot do without."""
    fitting = let_in(quotas, pods if probe is None else (*pods, probe), demand)
    if before.fits is None:
        # At first as much as declared: jobs of before a restart hold their slots, and the count may lag behind now too.
        before = replace(before, fits=declared)
    learnt = _mind_quotas(before, declared if fitting is None else fitting, patience_s, now_s)
    learnt = _mind_nodes(learnt, pods, patience_s, now_s, is_waited_for=is_waited_for)
    learnt = _hear(learnt, pods, probe)
    slots = min(declared, learnt.fits or 0, declared if learnt.cap is None else learnt.cap)
    withheld = 0 if fitting is None else max(0, slots - fitting)
    return Room(slots, withheld, _why(slots - withheld, declared, learnt)), learnt


def reopened(before: Experience) -> Experience:
    """There is room again: pods that wait have another while."""
    return replace(before, waiting={}, blamed=frozenset(), cap=None)


def _mind_quotas(before: Experience, fitting: int, patience_s: float, now_s: float) -> Experience:
    """More room is believed at once, less of it when it has been so for a while."""
    if before.fits is None or fitting >= before.fits:
        return replace(before, fits=fitting, less_since_s=None, less=0)
    since_s = now_s if before.less_since_s is None else before.less_since_s
    most = max(before.less, fitting)
    if now_s - since_s >= patience_s:
        return replace(before, fits=most, less_since_s=None, less=0)
    return replace(before, less_since_s=since_s, less=most)


def _mind_nodes(
    before: Experience, pods: Sequence[Pod], patience_s: float, now_s: float, *, is_waited_for: bool
) -> Experience:
    alive = [pod for pod in pods if not pod.ending and not pod.is_over]
    # Between two tries to pull an image nothing is said against a pod, and it is as far as before.
    refused = frozenset(
        pod.uid for pod in alive if pod.refused or (pod.uid in before.refused and not pod.started)
    )
    unplaced = [pod.uid for pod in alive if pod.unschedulable is not None or pod.uid in refused]
    waiting = {uid: before.waiting.get(uid, now_s) for uid in unplaced}
    before = replace(before, refused=refused)
    blamed = before.blamed & waiting.keys()
    placed = sum(1 for pod in alive if pod.placed and pod.uid not in refused)
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
            words="",
            words_of="",
        )
    if before.cap is not None and now_s >= _believed_until_s(before, is_waited_for):
        return replace(before, waiting=dict.fromkeys(waiting, now_s), blamed=frozenset(), cap=None)
    return replace(before, waiting=waiting, blamed=blamed)


def _believed_until_s(learnt: Experience, is_waited_for: bool) -> float:
    """Where some pods have room it is for a try to tell whether there is enough for a job that waits. Where none has, a
    pod of our own tells it sooner, and tries are for the case that it cannot."""
    if is_waited_for and learnt.cap:
        return learnt.cap_until_s - learnt.retry_s + RETRY_S
    return learnt.cap_until_s


def _hear(learnt: Experience, pods: Sequence[Pod], probe: Pod | None) -> Experience:
    """What is said of pods that are stuck. Once of each: a kubelet changes its words every few seconds."""
    if learnt.cap is None:
        return learnt
    speaker = next((pod for pod in pods if pod.uid in learnt.blamed and pod.hindered is not None), None)
    if speaker is None and probe is not None and probe.hindered is not None:
        speaker = probe
    if (
        speaker is None
        or speaker.uid == learnt.words_of
        or (learnt.words_of and speaker.uid in learnt.blamed)
    ):
        return learnt
    if speaker.unschedulable is None:
        words = f"pods do not start: {speaker.refused}"
    else:
        words = f"no node has room for more: {speaker.unschedulable or 'pods found none'}"
    return replace(learnt, words=words, words_of=speaker.uid)


def _why(slots: int, declared: int, learnt: Experience) -> str:
    if slots >= declared:
        return ""
    if learnt.cap is not None and learnt.cap <= slots:
        return learnt.words.rstrip(".") or "pods found no node, or did not start there"
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
        containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
        return Pod(
            uid=str(metadata["uid"]),
            name=str(metadata["name"]),
            job_id=str(_labels(item)[JOB_LABEL]),
            attempt=str(_labels(item).get(ATTEMPT_LABEL, "")),
            phase=str(status["phase"]),
            placed=bool((item.get("spec") or {}).get("nodeName")),
            unschedulable=str(scheduled.get("message") or scheduled.get("reason", "")) if waits else None,
            ending="deletionTimestamp" in metadata,
            refused=next(filter(None, map(_refusal, containers)), None),
            started=any(
                (one.get("state") or {}).keys() & {"running", "terminated"}
                for one in status.get("containerStatuses") or ()
            ),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise NotFromTheApi("A pod in the answer lacks its name, uid or phase.") from error


def _refusal(container: Mapping[str, Any]) -> str | None:
    """Why a container does not start, from its entry in a pod's status."""
    waits = (container.get("state") or {}).get("waiting") or {}
    reason, image = str(waits.get("reason", "")), container.get("image", "")
    said = masked_text(" ".join(str(waits.get("message") or "").split()))
    said = said if len(said) <= _MOST_WORDS else f"{said[:_MOST_WORDS]}..."
    why = f"{reason}: {said}" if said else reason
    if reason in _NO_IMAGE:
        return f"the image {image} cannot be pulled ({why})"
    if reason in _NO_CONTAINER:
        return f"no container can be made of the image {image} ({why})"
    return None


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

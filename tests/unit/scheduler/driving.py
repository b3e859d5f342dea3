"""A job under test: builds graphs, feeds events to the core on virtual time, and checks every invariant each time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from app.model import ids
from app.model.jobgraph import (
    InPlace,
    JobGraph,
    JobType,
    JobVertex,
    SinkSpec,
    SourceSpec,
    SqlSpec,
    VertexInput,
)
from app.model.options import JobOptions
from app.model.plan import Slot
from app.model.public_event import PublicEvent, PublicEventType
from app.model.requirements import Bounds, Deadline, Requirements
from app.model.rescale import RescaleRecord
from app.model.status import JobStatus
from app.scheduler.adaptive.draft import status_of
from app.scheduler.adaptive.effects import Effect
from app.scheduler.adaptive.events import (
    AttemptRunning,
    AttemptStopped,
    BatchCompleted,
    Event,
    PlanApplied,
    RequirementsUpdated,
    SlotsChanged,
    StartScheduling,
    TimerFired,
)
from app.scheduler.adaptive.journal import Told, facts_of
from app.scheduler.adaptive.resources import stabilization_ms
from app.scheduler.adaptive.state import JobState
from app.scheduler.explain import explain
from app.scheduler.step import initial_state, step
from app.worker.job.public_events import step_events
from tests.invariants import validate

E = TypeVar("E", bound=Effect)

JOB = ids.derive_id("job", "under-test")
T0_MS = 1_700_000_000_000

COOLDOWN = "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling"
STABILIZATION = "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout"
MAX_DELAY = "jobmanager.adaptive-scheduler.rescale-trigger.max-delay"


def vertex(
    name: str,
    inputs: Sequence[str] = (),
    *,
    group: str = "default",
    maximum: int = 128,
    in_place: bool = True,
) -> JobVertex:
    operation = SqlSpec("SELECT 1") if inputs else SourceSpec("rate")
    return JobVertex(
        id=ids.vertex_id("under-test", name),
        name=name,
        operation=SinkSpec("noop") if name.startswith("sink") else operation,
        inputs=tuple(VertexInput(ids.vertex_id("under-test", one), one) for one in inputs),
        parallelism=1,
        lower_bound=1,
        max_parallelism=maximum,
        slot_sharing_group=group,
        slot_sharing_group_id=ids.slot_sharing_group_id("under-test", group),
        in_place=InPlace.YES if in_place else InPlace.QUERY_RESTART,
    )


def chain(*, in_place: bool = True) -> JobGraph:
    """source -> agg -> sink in one slot sharing group; ``in_place`` is that of agg."""
    vertices = (vertex("source"), vertex("agg", ["source"], in_place=in_place), vertex("sink", ["agg"]))
    return JobGraph("under-test", JobType.STREAMING, vertices)


def mixed() -> JobGraph:
    """source -> agg -> sink, the sink in a group of its own and agg changed by a restart only."""
    vertices = (
        vertex("source"),
        vertex("agg", ["source"], in_place=False),
        vertex("sink", ["agg"], group="sinks"),
    )
    return JobGraph("under-test", JobType.STREAMING, vertices)


def two_sinks(*, in_place: bool = True) -> JobGraph:
    """source -> agg -> sink, and source -> sink-raw: two queries."""
    vertices = (
        vertex("source"),
        vertex("agg", ["source"], in_place=in_place),
        vertex("sink", ["agg"]),
        vertex("sink-raw", ["source"]),
    )
    return JobGraph("under-test", JobType.STREAMING, vertices)


def group_graph(names: Sequence[str]) -> JobGraph:
    """One vertex per slot sharing group."""
    return JobGraph("under-test", JobType.STREAMING, tuple(vertex(name, group=name) for name in names))


def slots(count: int, *, manager: str = "tm", first: int = 0) -> tuple[Slot, ...]:
    return tuple(Slot(f"{manager}-{index}", manager) for index in range(first, first + count))


def bounds(graph: JobGraph, lower: int, upper: int, version: int = 1, **who: str) -> Requirements:
    """The same bounds for every vertex."""
    pairs = tuple((one.id, Bounds(lower, upper)) for one in graph.vertices)
    return Requirements(ids.derive_id("requirements", version), version, pairs, **who)


class Job:
    """One job and its virtual clock. ``effects`` are those of the last step, ``records`` all that ended so far,
    ``told`` all public events."""

    def __init__(
        self,
        graph: JobGraph | None = None,
        *,
        lower: int = 1,
        upper: int = 2,
        options: dict[str, object] | None = None,
    ) -> None:
        self.graph = graph or chain()
        parsed, errors = JobOptions.parse(options or {})
        assert errors == []
        self.now_ms = T0_MS
        self.version = 1
        self.state = initial_state(JOB, self.graph, parsed, bounds(self.graph, lower, upper), self.now_ms)
        self.effects: tuple[Effect, ...] = ()
        self.history: list[Effect] = []
        self.records: list[RescaleRecord] = []
        self.told: list[PublicEvent] = []
        self.batch = 0
        self.check()

    # -- looking

    @property
    def kind(self) -> str:
        return self.state.phase.kind

    @property
    def status(self) -> JobStatus:
        return status_of(self.state)

    @property
    def stage(self) -> str:
        return str(self.state.phase.manager.stage)

    @property
    def open(self) -> RescaleRecord:
        record = self.state.timeline.open
        assert record is not None, "no record is open"
        return record

    @property
    def nothing_open(self) -> bool:
        return self.state.timeline.open is None

    @property
    def parallelism(self) -> list[int]:
        """In force, in declared order."""
        assert self.state.plan is not None
        return [value for _, value in self.state.plan.parallelism]

    def effect(self, kind: type[E]) -> E:
        """The one effect of that kind in the last step."""
        found = [one for one in self.effects if isinstance(one, kind)]
        assert len(found) == 1, f"{kind.__name__} {len(found)} times in {self.effects}"
        return found[0]

    def has_effect(self, kind: type[Effect]) -> bool:
        return any(isinstance(one, kind) for one in self.effects)

    def timer_in_ms(self, name: str) -> int:
        """How long until the timer is due."""
        due = [timer.at_ms for timer in self.state.timers if timer.name == name]
        assert due, f"{name} is not held: {self.state.timers}"
        return due[0] - self.now_ms

    def ended(self) -> list[tuple[str, str, int]]:
        """(cause, reason, attempt id) of every record that ended, in order."""
        return [(one.cause.value, one.reason.value, one.attempt_id) for one in self.records if one.reason]

    # -- doing

    def do(self, event: Event) -> Job:
        before = self.state
        self.state, self.effects, facts = step(before, event, self.now_ms)
        self.history.extend(self.effects)
        self.check(facts)
        closed = [one for one in facts_of(RescaleRecord, facts) if not one.is_open]
        self._tell(before, event, facts, closed)
        self.records.extend(closed)
        return self

    def _tell(
        self, before: JobState, event: Event, facts: tuple[Told, ...], closed: list[RescaleRecord]
    ) -> None:
        """Public events of the step: each record begins and ends in them once, and they follow the status."""
        told = step_events(facts, event, self.state, self.now_ms)
        self.told.extend(told)
        after = self.state.timeline
        assert [one.fields["number"] for one in told if one.type is PublicEventType.RESCALE_BEGUN] == [
            *range(before.timeline.records + 1, after.records + 1)
        ]
        assert [
            (one.fields["number"], one.fields["terminatedReason"], one.fields["durationInMillis"])
            for one in told
            if one.type is PublicEventType.RESCALE_ENDED
        ] == [(one.number, one.reason, one.end_ms - one.start_ms) for one in closed if one.end_ms is not None]
        changes = [
            (one.fields["previousStatus"], one.fields["status"]) for one in told if "status" in one.fields
        ]
        was, now = status_of(before), status_of(self.state)
        assert changes == ([] if was is now else [(was, now)])
        self._tell_of_attempts_and_requests(before, told)

    def _tell_of_attempts_and_requests(self, before: JobState, told: list[PublicEvent]) -> None:
        after = self.state

        def fields(kind: PublicEventType, name: str) -> list[Any]:
            return [one.fields[name] for one in told if one.type is kind]

        began = [after.attempt] if after.attempt > before.attempt else []
        assert fields(PublicEventType.ATTEMPT_BEGUN, "attempt") == began
        over = [before.attempt] if before.driver.alive and (began or not after.driver.alive) else []
        assert fields(PublicEventType.ATTEMPT_ENDED, "attempt") == over
        for kind, old, new in (
            (PublicEventType.REQUIREMENTS, before.requirements, after.requirements),
            (PublicEventType.SCALING_POLICY, before.policy, after.policy),
            (PublicEventType.SLOT_SHARE, before.share, after.share),
        ):
            assert fields(kind, "version") == ([] if old is new else [new.version])

    def check(self, facts: tuple[Told, ...] = ()) -> None:
        validate(self.state, facts)
        sentences, _ = explain(self.state, self.now_ms)
        assert sentences and all(sentence.strip() == sentence and sentence for sentence in sentences)

    def wait(self, duration_ms: int) -> Job:
        """Let time pass, firing each timer when it is due."""
        end_ms = self.now_ms + duration_ms
        while True:
            due = sorted((one for one in self.state.timers if one.at_ms <= end_ms), key=lambda one: one.at_ms)
            if not due:
                self.now_ms = end_ms
                return self
            self.now_ms = max(self.now_ms, due[0].at_ms)
            self.do(TimerFired(due[0].name, due[0].version))

    def hold(self, count: int) -> Job:
        return self.do(SlotsChanged(slots(count)))

    def put(self, lower: int, upper: int, *, deadline: Deadline | None = None, **who: str) -> Job:
        self.version = max(self.version, self.state.requirements.version) + 1
        wanted = bounds(self.graph, lower, upper, self.version, **who)
        return self.do(RequirementsUpdated(wanted, deadline))

    def put_each(self, deadline: Deadline | None = None, **wanted: tuple[int, int]) -> Job:
        """Bounds by vertex name."""
        self.version = max(self.version, self.state.requirements.version) + 1
        pairs = tuple((one.id, Bounds(*wanted[one.name])) for one in self.graph.vertices)
        return self.do(
            RequirementsUpdated(
                Requirements(ids.derive_id("requirements", self.version), self.version, pairs), deadline
            )
        )

    def commit(self, *, attempt: int | None = None) -> Job:
        """A micro-batch is committed at the newest plan."""
        self.batch += 1
        number = self.state.attempt if attempt is None else attempt
        return self.do(BatchCompleted(number, "query", self.batch, self.state.plan_version))

    def applied(self, **more: Any) -> Job:
        """The driver confirms the newest plan."""
        return self.do(PlanApplied(self.state.attempt, self.state.plan_version, **more))

    def starts(self) -> Job:
        return self.do(AttemptRunning(self.state.attempt))

    def stops(self, *, driver_alive: bool = False) -> Job:
        return self.do(AttemptStopped(self.state.attempt, driver_alive=driver_alive))

    def run(self, held: int = 2) -> Job:
        """Submit, get slots, start, commit the first batch."""
        return self.start_up(held).commit()

    def start_up(self, held: int = 2) -> Job:
        """Submit, get slots, start."""
        return self.submit(held).starts()

    def submit(self, held: int = 2) -> Job:
        """Submit, get slots; the driver is being started."""
        self.do(StartScheduling()).hold(held)
        if self.kind == "WaitingForResources":
            self.wait(stabilization_ms(self.state))
        return self


def restarting_job(cooldown: str = "30 s", stabilization: str = "60 s", max_delay: str = "3 s") -> Job:
    """A running job whose middle vertex changes by a restart only, so that the manager of production Flink decides."""
    options = {COOLDOWN: cooldown, STABILIZATION: stabilization, MAX_DELAY: max_delay}
    return Job(chain(in_place=False), upper=4, options=options).run(held=2)

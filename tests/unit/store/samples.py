"""Typical values to store: a job of four vertices that is running and is being rescaled."""

from __future__ import annotations

from app.model.ids import derive_id, slot_sharing_group_id, vertex_id
from app.model.job_state.supply import Supply
from app.model.jobgraph import JobGraph, JobType, JobVertex, SinkSpec, SourceSpec, SqlSpec, VertexInput
from app.model.options import JobOptions
from app.model.plan import Plan, Rung, Slot
from app.model.requirements import Bounds, Requirements
from app.model.rescale import (
    RescaleRecord,
    SlotGroupRescale,
    StateSpan,
    TerminatedReason,
    TriggerCause,
    VertexRescale,
)
from app.model.scaling_policy import FloorCeiling, ScalingPolicy
from app.model.slot_share import SlotShare
from app.model.status import JobStatus
from app.scheduler.adaptive.state import Executing, JobState, Manager, Rescaling, Timeline, Timer
from app.store.writes import (
    FIRST_EPOCH,
    AddRequirements,
    Attempt,
    CreateJob,
    PutAttempt,
    PutRescale,
    SaveState,
    UnitOfWork,
)

NOW_MS = 1_760_000_000_000
NAMES = ("flights", "delays", "enrich", "store")


def job_id(number: int = 1) -> str:
    return derive_id("job", number)


def graph() -> JobGraph:
    vertices = []
    for index, name in enumerate(NAMES):
        inputs = (VertexInput(vertex_id("sample", NAMES[index - 1]), NAMES[index - 1]),) if index else ()
        operation = SourceSpec("csv", "in/") if not index else SqlSpec(f"SELECT * FROM {NAMES[index - 1]}")
        vertices.append(
            JobVertex(
                id=vertex_id("sample", name),
                name=name,
                operation=SinkSpec("parquet", "out/") if name == "store" else operation,
                inputs=inputs,
                parallelism=4,
                lower_bound=1,
                max_parallelism=12,
                slot_sharing_group="default",
                slot_sharing_group_id=slot_sharing_group_id("sample", "default"),
                stateful=name == "delays",
            )
        )
    return JobGraph("sample", JobType.STREAMING, tuple(vertices))


GRAPH = graph()
OPTIONS = JobOptions()


def requirements(job: str, version: int = 1, upper: int = 4) -> Requirements:
    bounds = tuple((vertex.id, Bounds(1, upper)) for vertex in GRAPH.vertices)
    return Requirements(derive_id("requirements", job, version), version, bounds, "ann", "morning load")


def plan(version: int = 1, parallelism: int = 4) -> Plan:
    return Plan(
        version,
        tuple((vertex.id, parallelism) for vertex in GRAPH.vertices),
        ((derive_id("group"), tuple(f"host-{n}" for n in range(parallelism))),),
    )


def record(
    job: str, number: int = 1, *, reason: TerminatedReason | None = None, took_ms: int = 900
) -> RescaleRecord:
    """Open unless ``reason`` says how it ended."""
    start_ms = NOW_MS + number * 1_000
    return RescaleRecord(
        uuid=derive_id("rescale", job, number),
        number=number,
        requirements_uuid=derive_id("requirements", job, 1),
        attempt_id=1,
        cause=TriggerCause.UPDATE_REQUIREMENT,
        start_ms=start_ms,
        vertices=tuple(VertexRescale(vertex.id, 4, 1, 2, 4) for vertex in GRAPH.vertices),
        groups=(SlotGroupRescale(derive_id("group"), "default", 4, 1, 2, 4),),
        spans=(StateSpan("Executing", start_ms, start_ms + 5), StateSpan("Rescaling", start_ms + 5, None)),
        end_ms=None if reason is None else start_ms + took_ms,
        reason=reason,
        message="as asked" if reason else None,
        rung=Rung.IN_PLACE,
        output_gap_ms=120 if reason else None,
        requested_by="ann",
        request_reason="morning load",
        rollback_of=number - 1 if number > 1 else None,
    )


def state(job: str, *, version: int = 1) -> JobState:
    return JobState(
        job_id=job,
        graph=GRAPH,
        options=OPTIONS,
        requirements=requirements(job, version),
        phase=Rescaling(plan(version + 1)) if version % 2 else Executing(Manager("Idling", NOW_MS)),
        phase_version=version + 3,
        phase_since_ms=NOW_MS,
        slots=tuple(Slot(f"host-{n}", "host") for n in range(8)),
        plan=plan(version),
        plan_version=version,
        attempt=1,
        timeline=Timeline(
            open=record(job, version),
            records=version,
            requirements_uuid=derive_id("requirements", job, version),
            attempt_id=1,
            last_completed=record(job, version, reason=TerminatedReason.SUCCEEDED),
            counts=(("COMPLETED", version),),
        ),
        timers=(Timer("apply", version + 3, NOW_MS + 60_000),),
        status_since_ms=((JobStatus.INITIALIZING, NOW_MS), (JobStatus.RUNNING, NOW_MS + 5)),
        supply=Supply(declared=4, reason="Its cap is 6 slot(s).", changed_ms=NOW_MS),
        share=SlotShare(2, 3, -1, 6, "ann", "peak", NOW_MS),
        policy=ScalingPolicy(2, FloorCeiling(None, 8), (("v", FloorCeiling(2)),), "olga", "peak", NOW_MS),
    )


def creation(number: int = 1) -> UnitOfWork:
    """A unit that makes job ``number`` with its first requirements and an open record."""
    job = job_id(number)
    return UnitOfWork(job, FIRST_EPOCH).add(
        CreateJob(
            name="sample",
            type="STREAMING",
            document='{"name": "sample"}',
            options=OPTIONS,
            submitted_ms=NOW_MS + number,
            submitted_by="ann",
            state=state(job),
            status=JobStatus.CREATED,
        ),
        AddRequirements(requirements(job), NOW_MS),
        PutRescale(record(job)),
    )


def put(job: str, seq: int, *, epoch: int = FIRST_EPOCH) -> UnitOfWork:
    """What a PUT of requirements writes, as step ``seq`` of a job: its state, requirements and records.

    The record that the step before left open ends, and one of its own opens.
    """
    return UnitOfWork(job, epoch).add(
        SaveState(seq, state(job, version=seq), JobStatus.RUNNING),
        AddRequirements(requirements(job, seq), NOW_MS + seq),
        PutRescale(record(job, seq - 1, reason=TerminatedReason.RESOURCE_REQUIREMENTS_UPDATED)),
        PutRescale(record(job, seq)),
    )


def finish(job: str, seq: int, *, epoch: int = FIRST_EPOCH) -> UnitOfWork:
    """The job ends, its open record with it."""
    return UnitOfWork(job, epoch).add(
        SaveState(seq, state(job, version=seq), JobStatus.FINISHED, NOW_MS + seq),
        PutRescale(record(job, seq - 1, reason=TerminatedReason.JOB_FINISHED)),
    )


def attempt(number: int = 1) -> Attempt:
    return Attempt(
        number,
        FIRST_EPOCH,
        f"driver-{number}",
        "hash",
        NOW_MS,
        pid=4711,
        pid_started_at=12.25,
        log_from=7,
        plan_version=number,
        parallelism=(("a" * 32, 4), ("b" * 32, 2)),
    )


def starts(job: str, number: int = 1) -> UnitOfWork:
    return UnitOfWork(job, FIRST_EPOCH).add(PutAttempt(attempt(number)))

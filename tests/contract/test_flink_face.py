"""The JSON of Flink's paths has the fields, types and enums that a live Flink 2.3 cluster answers, in every state."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import pytest

from app.model.rescale import TerminalState, TerminatedReason, TriggerCause
from app.model.status import JobStatus
from tests.contract.shapes import required, sample, shape_of
from tests.contract.world import GRAPH, RESTART_AT_ONCE, World, bounds

RECORD_ADDITIONS = (
    "number",
    "requestedBy",
    "reason",
    "message",
    "rung",
    "outputGapInMillis",
    "reprocessedRecords",
    "rollbackOf",
    "causeInWords",
    "parallelismInWords",
)
RECORD_NULLABLE = {
    "/endTimestampInMillis": {"null"},
    "/terminalState": {"null"},
    "/terminatedReason": {"null"},
    "/vertices/*/preRescaleParallelism": {"integer", "null"},
    "/vertices/*/postRescaleParallelism": {"integer", "null"},
    "/slots/*/preRescaleSlots": {"integer", "null"},
    "/slots/*/postRescaleSlots": {"integer", "null"},
    "/schedulerStates/[]/stringifiedException": {"text", "null"},
}


@dataclass(frozen=True)
class Face:
    """A path of Flink's and the samples of it.

    ``ours``: fields that Slotwise adds. ``types``: types that the samples happen not to show. ``rare``: fields that
    depend on what the cluster did. ``open``: places below which the fields are data.
    """

    path: str
    samples: tuple[str, ...]
    ours: tuple[str, ...] = ()
    types: dict[str, set[str]] = field(default_factory=dict)
    rare: tuple[str, ...] = ()
    open: tuple[str, ...] = ()


def _prefixed(prefix: str, values: dict[str, set[str]]) -> dict[str, set[str]]:
    return {prefix + place: types for place, types in values.items()}


RECORD_PLACES = tuple(f"/[]/{name}" for name in RECORD_ADDITIONS)
JOB_FACES = (
    Face(
        "/jobs/{job}",
        ("007", "076", "092"),
        ours=(
            *("/schedulerState", "/attempt", "/driverPid", "/sparkUi"),
            *("/submittedBy", "/underWay", "/lastFailure", "/workingDirectory"),
            "/vertices/[]/progress",
            *(f"/queries{rest}" for rest in ("", "/[]/id", "/[]/runId", "/[]/batchId")),
        ),
    ),
    Face("/jobs/{job}/plan", ("008",)),
    Face("/jobs/{job}/config", ("009",), open=("/execution-config/user-config",)),
    Face("/jobs/{job}/status", ("011", "077", "091")),
    Face("/jobs/{job}/resource-requirements", ("012",)),
    Face("/jobs/{job}/exceptions", ("010",), open=("/exceptionHistory/entries",)),
    Face("/jobs/{job}/execution-result", ("030", "078", "093")),
    Face(
        "/jobs/{job}/rescales/overview",
        ("013", "084"),
        ours=tuple(
            f"/latest/{kind}/{name}"
            for kind in ("completed", "failed", "ignored")
            for name in RECORD_ADDITIONS
        ),
        types={
            "/latest/ignored": {"object", "null"},
            "/latest/failed": {"object", "null"},
            "/latest/completed": {"null"},
        },
        open=("/latest/completed", "/latest/failed", "/latest/ignored"),
    ),
    Face(
        "/jobs/{job}/rescales/history",
        ("014", "057", "083"),
        ours=RECORD_PLACES,
        types=_prefixed("/[]", RECORD_NULLABLE),
        # Flink leaves them empty in the history; Slotwise fills them: their inner form is that of the details.
        open=("/[]/vertices", "/[]/slots"),
    ),
    Face(
        "/jobs/{job}/rescales/summary",
        ("015", "085"),
        types={
            f"/{kind}DurationStatsInMillis/{percentile}": {"double", "NaN"}
            for kind in ("rescales", "completedRescales", "ignoredRescales", "failedRescales")
            for percentile in ("p50", "p90", "p95", "p99", "p999")
        },
    ),
    Face(
        "/jobs/{job}/rescales/config",
        ("016",),
        ours=(
            "/inPlaceCooldownTimeoutInMillis",
            "/inPlaceResourceStabilizationTimeoutInMillis",
            "/inPlaceMaximumDelayInMillis",
        ),
    ),
    Face(
        "/jobs/{job}/vertices/{vertex}",
        ("020",),
        ours=("/progress",),
        open=("/subtasks/[]/status-duration", "/aggregated/status-duration"),
    ),
    Face("/jobs/{job}/metrics", ("038",)),
    Face("/jobs/{job}/metrics?get=uptime,numRestarts,lastCheckpointDuration,runningTime,nope", ("039",)),
)
OVERVIEW = Face("/jobs/overview", ("006", "080"), ours=("/jobs/[]/lastFailure", "/jobs/[]/schedulerState"))
CLUSTER_FACES = (
    Face("/config", ("003",), ours=("/slotwise-version",)),
    Face("/overview", ("004",), ours=("/slotwise-version",)),
    Face("/jobs", ("005",)),
    Face("/jobmanager/metrics", ("035",)),
    Face("/jobmanager/metrics?get=taskSlotsTotal,nope", ("039",)),
    OVERVIEW,
    Face("/taskmanagers", ("031",), open=("/taskmanagers/[]/totalResource/extendedResources",)),
    Face(
        "/taskmanagers/host",
        ("059",),
        # The collectors of a JVM that a host is not.
        open=("/metrics/garbageCollectors",),
    ),
)


def check(face: Face, answer: Any) -> None:
    """Every field of Flink's is there, of Flink's type, and what else is there is declared."""
    bodies = [sample(number)["body"] for number in face.samples]
    theirs, ours = shape_of(*bodies), shape_of(answer)
    problems = []
    for place, types in ours.items():
        if _below(place, face.open):
            continue
        allowed = theirs.get(place, set()) | face.types.get(place, set())
        if place in theirs or place in face.types:
            if not types <= allowed:
                problems.append(f"{place} is {sorted(types)}, in Flink {sorted(allowed)}")
        elif not _below(place, face.ours, itself=True):
            problems.append(f"{place} is not a field of Flink's")
    parents = {place for place, types in ours.items() if types & {"object", "array"}}
    for place in required(*bodies):
        parent = place.rpartition("/")[0]
        has_members = place.endswith(("/[]", "/*"))
        if place not in ours and parent in parents and not has_members and not _below(place, face.open):
            problems.append(f"{place} is missing")
    assert not problems, f"{face.path}: {problems}"


def _below(place: str, roots: tuple[str, ...], *, itself: bool = False) -> bool:
    return any(place.startswith(root + "/") or (itself and place == root) for root in roots)


async def check_job(world: World, job_id: str) -> None:
    vertex = await world.vertex(job_id, "delays")
    for face in JOB_FACES:
        for prefix in ("", "/v1"):
            check(face, await world.get(prefix + face.path.format(job=job_id, vertex=vertex)))
    for record in await world.get(f"/jobs/{job_id}/rescales/history"):
        details = await world.get(f"/jobs/{job_id}/rescales/details/{record['rescaleUuid']}")
        check(DETAILS, details)
        check_enums(details)
        # The history has the same vertices and slots as the details.
        assert {**details, "schedulerStates": []} == record
    check_enums(await world.get(f"/jobs/{job_id}"))


DETAILS = Face(
    "/jobs/{job}/rescales/details/{uuid}",
    ("058",),
    ours=tuple(f"/{name}" for name in RECORD_ADDITIONS),
    types=RECORD_NULLABLE,
)

ENUMS: dict[str, set[str]] = {
    "terminalState": {state.value for state in TerminalState},
    "triggerCause": {cause.value for cause in TriggerCause},
    "terminatedReason": {reason.value for reason in TerminatedReason},
    "schedulerType": {"Default", "Adaptive", "AdaptiveBatch"},
    "job-type": {"STREAMING", "BATCH"},
    "exchange": {"pipelined_bounded", "pipelined", "blocking"},
    "ship_strategy": {"HASH", "REBALANCE", "BROADCAST", "FORWARD", "RESCALE", "GLOBAL", "CUSTOM"},
}


def check_enums(value: Any) -> None:
    if isinstance(value, list):
        for item in value:
            check_enums(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            if name in ENUMS and item is not None:
                assert item in ENUMS[name], (name, item)
            check_enums(item)


def test_enums_are_flinks() -> None:
    """The enums as production Flink has them, written down here once more so that a change of ours is noticed."""
    # A cause of our own: Flink has no policies, and its web page shows a cause as it is.
    assert ENUMS["triggerCause"] - {"UPDATE_POLICY"} == {
        "INITIAL_SCHEDULE", "UPDATE_REQUIREMENT", "NEW_RESOURCE_AVAILABLE", "RECOVERABLE_FAILOVER",
    }  # fmt: skip
    assert ENUMS["terminalState"] == {"COMPLETED", "FAILED", "IGNORED"}
    assert ENUMS["terminatedReason"] == {
        "SUCCEEDED", "EXCEPTION_OCCURRED", "RESOURCE_REQUIREMENTS_UPDATED", "NO_RESOURCES_OR_PARALLELISMS_CHANGE",
        "JOB_FINISHED", "JOB_FAILED", "JOB_CANCELED", "JOB_FAILOVER_RESTARTING",
    }  # fmt: skip
    assert {status.value for status in JobStatus} == set(sample("007")["body"]["timestamps"])


async def test_running_and_rescaled(any_world: World) -> None:
    world = any_world
    job_id = await world.running()
    await check_job(world, job_id)
    assert (await world.put(job_id, bounds(flights=(1, 4), delays=(1, 4), store=(1, 1)))).json() == sample(
        "067"
    )["body"]
    await world.completed(job_id, 2)
    await check_job(world, job_id)
    for face in CLUSTER_FACES:
        check(face, await world.get(face.path))


async def test_waiting_for_resources(world: World) -> None:
    graph = {
        **GRAPH,
        "vertices": [{**vertex, "parallelism": 12, "lowerBound": 12} for vertex in GRAPH["vertices"]],
    }
    job_id = await world.submit(graph)
    await world.status(job_id, "CREATED")
    await check_job(world, job_id)
    check(OVERVIEW, await world.get("/jobs/overview"))


async def test_rescale_in_progress_has_no_end(world: World) -> None:
    job_id = await world.running()
    world.host.hold()
    await world.put(job_id, bounds(flights=(1, 4), delays=(1, 4), store=(1, 1)))
    record = (await world.get(f"/jobs/{job_id}/rescales/history"))[0]
    assert (record["endTimestampInMillis"], record["terminalState"], record["terminatedReason"]) == (
        None,
        None,
        None,
    )
    assert (await world.get(f"/jobs/{job_id}/rescales/overview"))["rescalesCounts"]["inProgress"] == 1
    await check_job(world, job_id)


async def test_failover_and_its_exception(world: World) -> None:
    job_id = await world.running({**GRAPH, "config": RESTART_AT_ONCE})
    world.driver().fail(
        "ValueError: no airline has the code ZZ", stack="ValueError: no airline\n  line 1", vertex="delays"
    )
    await world.completed(job_id, 2)
    await check_job(world, job_id)
    (entry,) = (await world.get(f"/jobs/{job_id}/exceptions"))["exceptionHistory"]["entries"]
    assert entry["exceptionName"] == "ValueError"
    assert entry["taskName"] == "delays"
    assert entry["concurrentExceptions"] == []
    assert entry["failureLabels"] == {}
    causes = [record["triggerCause"] for record in await world.get(f"/jobs/{job_id}/rescales/history")]
    assert causes == ["RECOVERABLE_FAILOVER", "INITIAL_SCHEDULE"]


async def test_stopped(any_world: World) -> None:
    world = any_world
    job_id = await world.running()
    stopped = await world.http.post(f"/jobs/{job_id}/stop", json={"drain": False})
    assert stopped.status_code == sample("073")["status"]
    assert shape_of(stopped.json()) == shape_of(sample("073")["body"])
    trigger = stopped.json()["request-id"]
    await world.status(job_id, "FINISHED")
    status = await world.get(f"/jobs/{job_id}/savepoints/{trigger}")
    assert shape_of(status) == shape_of(sample("075")["body"])
    assert status["status"]["id"] == "COMPLETED"
    await check_job(world, job_id)
    result = await world.get(f"/jobs/{job_id}/execution-result")
    assert result["job-execution-result"]["application-status"] == "SUCCEEDED"


async def test_stop_in_progress(world: World) -> None:
    job_id = await world.running()
    world.host.hold()
    trigger = (await world.http.post(f"/jobs/{job_id}/stop")).json()["request-id"]
    assert await world.get(f"/jobs/{job_id}/savepoints/{trigger}") == sample("070")["body"]
    world.host.release()
    await world.status(job_id, "FINISHED")


async def test_canceled(any_world: World) -> None:
    world = any_world
    job_id = await world.running()
    for _ in range(2):
        canceled = await world.http.patch(f"/jobs/{job_id}", params={"mode": "cancel"})
        assert (canceled.status_code, canceled.json()) == (sample("090")["status"], sample("090")["body"])
        await world.status(job_id, "CANCELED")
    await check_job(world, job_id)
    result = await world.get(f"/jobs/{job_id}/execution-result")
    assert result["job-execution-result"]["application-status"] == "CANCELED"


async def test_failed(world: World) -> None:
    job_id = await world.running({**GRAPH, "config": {"restart-strategy.type": "none"}})
    world.driver().fail("RuntimeError: out of order")
    await world.status(job_id, "FAILED")
    await check_job_result(world, job_id)


async def check_job_result(world: World, job_id: str) -> None:
    result = (await world.get(f"/jobs/{job_id}/execution-result"))["job-execution-result"]
    assert result["application-status"] == "FAILED"
    assert set(result["failure-cause"]) == {"class", "stack-trace"}
    assert result["failure-cause"]["class"] == "RuntimeError"
    check(JOB_FACES[0], await world.get(f"/jobs/{job_id}"))


async def test_timestamps_of_running_move_with_a_restart(world: World) -> None:
    config = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "20 ms"}
    job_id = await world.running({**GRAPH, "config": config})
    before = await world.get(f"/jobs/{job_id}")
    world.driver().die(1)
    await world.completed(job_id, 2)
    after = await world.get(f"/jobs/{job_id}")
    assert after["timestamps"]["RUNNING"] > before["timestamps"]["RUNNING"]
    assert after["timestamps"]["RESTARTING"] > 0
    assert after["timestamps"]["INITIALIZING"] == before["timestamps"]["INITIALIZING"]


async def test_vertex_metrics_of_the_last_batch(world: World) -> None:
    job_id = await world.running()
    vertex = await world.vertex(job_id, "delays")
    base = f"/jobs/{job_id}/vertices/{vertex}/subtasks/metrics"
    names = {metric["id"] for metric in await world.get(base)}
    assert {"numRecordsInPerSecond", "numRecordsOutPerSecond", "busyTimeMsPerSecond"} <= names
    (metric,) = await world.get(base, get="numRecordsInPerSecond,nope", agg="sum,max")
    assert set(metric) == {"id", "sum", "max"}
    assert metric["sum"] > 0


@pytest.mark.parametrize("graph_change", [{}, {"name": "another"}])
async def test_vertex_ids_follow_from_the_names(world: World, graph_change: dict[str, Any]) -> None:
    first = await world.get(f"/jobs/{await world.submit()}/resource-requirements")
    second = await world.get(f"/jobs/{await world.submit({**GRAPH, **graph_change})}/resource-requirements")
    assert all(re.fullmatch("[0-9a-f]{32}", key) for key in first)
    assert (set(first) == set(second)) is (not graph_change)


async def test_the_list_of_jobs_is_current_in_every_state(world: World) -> None:
    ids = [await world.running() for _ in range(2)]
    await world.http.post(f"/jobs/{ids[0]}/stop")
    await world.status(ids[0], "FINISHED")
    for _ in range(2):
        listed = await world.get("/jobs/overview")
        check(OVERVIEW, listed)
        jobs = {job["jid"]: job for job in listed["jobs"]}
        assert [job["jid"] for job in listed["jobs"]] == ids[::-1]
        assert (jobs[ids[0]]["state"], jobs[ids[1]]["state"]) == ("FINISHED", "RUNNING")
        assert jobs[ids[0]]["duration"] == jobs[ids[0]]["end-time"] - jobs[ids[0]]["start-time"]
        assert jobs[ids[0]]["tasks"]["finished"] == jobs[ids[0]]["tasks"]["total"] == 5
        assert jobs[ids[1]]["end-time"] == -1
    await world.http.delete(f"/jobs/{ids[0]}")
    assert [job["jid"] for job in (await world.get("/jobs/overview"))["jobs"]] == ids[1:]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"name": 5}, "/name is ['integer']"),
        ({"duration": 1.0}, "/duration is ['double']"),
        ({"colour": "red"}, "/colour is not a field"),
        ({"timestamps": None}, "/timestamps is ['null']"),
        ({"vertices": [{"id": "x"}]}, "/vertices/[]/parallelism is missing"),
    ],
)
def test_the_comparison_notices(change: dict[str, Any], found: str) -> None:
    face, body = JOB_FACES[0], sample("007")["body"]
    check(face, body)
    with pytest.raises(AssertionError, match=re.escape(found)):
        check(face, {**body, **change})
    with pytest.raises(AssertionError, match="/jid is missing"):
        check(face, {name: value for name, value in body.items() if name != "jid"})

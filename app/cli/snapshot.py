"""A snapshot of a job: everything that `watch` and the demo show, read by a few requests."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from app.cli.client import Client, Json
from app.cli.jobs import deployed_parallelism, explanation_lines, last_failure_line, state_of
from app.model.status import TERMINAL_STATUSES

RESCALES_SHOWN = 5
PER_SUBTASK = ("busyTimeMsPerSecond",)
METRICS = (
    "numTasksObserved",
    "numRecordsInPerSecond",
    "numRecordsOutPerSecond",
    "pendingRecords",
    "busyTimeMsPerSecond",
)


@dataclass(frozen=True, slots=True)
class VertexLook:
    """``tasks``: what Spark reported for the last batch, None if it cannot be told.

    The fields from ``state`` on are of the run of its region, in a BATCH job: bytes are those between regions,
    ``percent`` is of its Spark tasks, ``rest_ms`` an estimate.
    """

    id: str
    name: str
    lower: int | None
    upper: int | None
    parallelism: int | None
    tasks: int | None
    records_in_per_second: float | None
    records_out_per_second: float | None
    busy_per_mille: float | None
    state: str = ""
    duration_ms: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    percent: int | None = None
    rest_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """``phase`` is the scheduler's state, such as Executing; ``backlog`` counts records not read yet, ``backlog_ms`` is
    for how long they have come; ``lag_ms``: how far the watermark is behind; ``failure`` says why the attempt before
    failed, if the job has not got over it."""

    job_id: str
    name: str
    status: str
    phase: str | None
    is_batch: bool
    vertices: tuple[VertexLook, ...]
    backlog: int | None
    driver_pid: int | None
    sentences: tuple[str, ...]
    rescales: tuple[dict[str, Any], ...]
    failure: str | None = None
    backlog_ms: int | None = None
    lag_ms: int | None = None
    batch_ms: int | None = None

    @property
    def ended(self) -> bool:
        return self.status in TERMINAL_STATUSES

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def look(client: Client, job_id: str, rescales: int = RESCALES_SHOWN) -> Look:
    """The job as it is now."""
    details = client.get(f"/jobs/{job_id}")
    ended = details["state"] in TERMINAL_STATUSES
    is_batch = details.get("job-type") == "BATCH"
    explanation = client.get(f"/jobs/{job_id}/explanation")
    history = client.get(f"/jobs/{job_id}/rescales/history", {"limit": rescales})
    load = {} if ended or is_batch else job_metrics(client, job_id)
    vertices = []
    backlog: int | None = None
    for vertex in details["vertices"]:
        values = {} if ended or is_batch else vertex_metrics(client, job_id, vertex["id"])
        declared = explanation["vertices"].get(vertex["id"], {})
        tasks = values.get("numTasksObserved")
        if "pendingRecords" in values:
            backlog = (backlog or 0) + round(values["pendingRecords"])
        vertices.append(
            VertexLook(
                id=vertex["id"],
                name=vertex["name"],
                lower=declared.get("lowerBound"),
                upper=declared.get("upperBound"),
                parallelism=deployed_parallelism(vertex),
                tasks=None if tasks is None else round(tasks),
                records_in_per_second=values.get("numRecordsInPerSecond"),
                records_out_per_second=values.get("numRecordsOutPerSecond"),
                busy_per_mille=values.get("busyTimeMsPerSecond"),
                state=vertex["status"],
                **(region_figures(vertex) if is_batch else {}),
            )
        )
    return Look(
        job_id=job_id,
        name=details["name"],
        status=state_of(details),
        phase=details.get("schedulerState"),
        is_batch=is_batch,
        vertices=tuple(vertices),
        backlog=backlog,
        driver_pid=details.get("driverPid"),
        sentences=() if ended else tuple(explanation_lines(explanation)),
        rescales=tuple(history),
        failure=last_failure_line(details),
        backlog_ms=load.get("pendingTimeMs"),
        lag_ms=load.get("watermarkLag"),
        batch_ms=load.get("lastCheckpointDuration"),
    )


def region_figures(vertex: Json) -> dict[str, int | None]:
    """What is known of a vertex of a BATCH job: how long its region has run, how far it is, and its bytes between
    regions."""
    metrics = vertex["metrics"]
    progress = vertex.get("progress") or {}

    def known(name: str) -> int | None:
        return metrics[name] if metrics[f"{name}-complete"] else None

    return {
        "duration_ms": vertex["duration"] if vertex["duration"] >= 0 else None,
        "read_bytes": known("read-bytes"),
        "written_bytes": known("write-bytes"),
        "percent": progress.get("percent"),
        "rest_ms": progress.get("estimatedRestInMillis"),
    }


def job_metrics(client: Client, job_id: str) -> dict[str, int]:
    """How far the job is behind, as far as it is known."""
    wanted = {"get": "pendingTimeMs,watermarkLag,lastCheckpointDuration"}
    values = client.get(f"/jobs/{job_id}/metrics", wanted)
    return {item["id"]: value for item in values if (value := int(item["value"])) >= 0}


def vertex_metrics(client: Client, job_id: str, vertex_id: str) -> dict[str, float]:
    """Metrics of one vertex: sums over its subtasks, and of busy time the average."""
    path = f"/jobs/{job_id}/vertices/{vertex_id}/subtasks/metrics"
    values: list[Json] = client.get(path, {"get": ",".join(METRICS)})
    return {item["id"]: float(item["avg" if item["id"] in PER_SUBTASK else "sum"]) for item in values}

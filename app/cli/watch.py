"""`slotwise watch`: a job, live; and the snapshot of a job that it and the demo show, read by a few requests."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from app.cli import rescales
from app.cli.client import Client, Json
from app.cli.errors import CliError, Refused, is_away
from app.cli.events import JobChanges
from app.cli.jobs import deployed_parallelism, explanation_lines, last_failure_line, state_of
from app.cli.options import Call, JobArgument
from app.cli.output import (
    STATUS_STYLES,
    Columns,
    Table,
    format_bytes,
    format_ms,
    format_number,
    format_percent,
    format_rest,
    is_terminal,
    print_json,
    say,
    until_interrupted,
    warn,
)
from app.model.status import TERMINAL_STATUSES

_VERTEX: Columns = {
    "~vertex": lambda vertex: vertex.name,
    ">lower": lambda vertex: format_number(vertex.lower),
    ">upper": lambda vertex: format_number(vertex.upper),
    ">parallelism": lambda vertex: format_number(vertex.parallelism),
}
_STREAMING: Columns = {
    **_VERTEX,
    ">tasks": lambda vertex: format_number(vertex.tasks),
    ">records in/s": lambda vertex: format_number(vertex.records_in_per_second),
    ">out/s": lambda vertex: format_number(vertex.records_out_per_second),
    ">busy": lambda vertex: None if vertex.busy_per_mille is None else f"{vertex.busy_per_mille / 10:.0f} %",
}
# The state of the region of each vertex, how far that is, how long it has run and may still run, and what it read and
# left for others.
_BATCH: Columns = {
    **_VERTEX,
    "state": lambda vertex: vertex.state,
    ">done": lambda vertex: format_percent(vertex.percent),
    ">time": lambda vertex: format_ms(vertex.duration_ms),
    ">rest": lambda vertex: format_rest(vertex.rest_ms),
    ">read": lambda vertex: format_bytes(vertex.read_bytes),
    ">written": lambda vertex: format_bytes(vertex.written_bytes),
}
RESCALES_SHOWN = 5
PER_SUBTASK = ("busyTimeMsPerSecond",)
METRICS = (
    "numTasksObserved",
    "numRecordsInPerSecond",
    "numRecordsOutPerSecond",
    "pendingRecords",
    "busyTimeMsPerSecond",
)


def watch(
    job: JobArgument,
    call: Call,
    interval: Annotated[
        float,
        typer.Option(
            min=0.1,
            max=60,
            help="Seconds between two looks at rates and backlog; what happens is shown at once.",
        ),
    ] = 2.0,
) -> None:
    """Watch a job until it ends: bounds, parallelism and tasks per vertex, rates, backlog, rescales."""
    client, job_id = call.client, call.client.find_job(job)
    with until_interrupted(), JobChanges(client, job_id, poll_s=interval) as changes:
        if call.as_json or not is_terminal():
            _watch_lines(client, job_id, changes, interval, as_json=call.as_json)
        else:
            _watch_live(client, job_id, changes, interval)


def _watch_live(client: Client, job_id: str, changes: JobChanges, interval_s: float) -> None:
    seen = look(client, job_id)
    with Live(render(seen), console=Console(), auto_refresh=False, transient=False) as live:
        while not seen.ended:
            changes.wait(interval_s)
            try:
                seen = look(client, job_id)
                live.update(render(seen), refresh=True)
            except CliError as error:
                if not is_away(error):
                    raise
                # The job may well go on without its control plane; so does watching it.
                live.update(Group(render(seen), Text(str(error), style="yellow")), refresh=True)


def _watch_lines(
    client: Client, job_id: str, changes: JobChanges, interval_s: float, *, as_json: bool
) -> None:
    """One line for each change: of anything with --json, else of what matters."""
    last: object = None
    away = False
    while True:
        try:
            seen = look(client, job_id)
        except CliError as error:
            if last is None or not is_away(error):
                raise
            if not away:
                say(str(error)) if not as_json else warn(str(error))
            away = True
        else:
            away = False
            now = asdict(seen) if as_json else plain_line(seen, with_rates=False)
            if now != last:
                print_json(now, compact=True) if as_json else say(plain_line(seen))
                last = now
            if seen.ended:
                return
        changes.wait(interval_s)


def plain_line(seen: Look, *, with_rates: bool = True) -> str:
    """`RUNNING Executing  flights 2/2  delays 4/4  backlog 1,200`: parallelism in force / observed tasks."""
    parts = [seen.status if seen.phase is None or seen.ended else f"{seen.status} {seen.phase}"]
    for vertex in seen.vertices:
        if seen.is_batch:
            at = "" if vertex.parallelism is None else f" {vertex.parallelism}"
            # A line for each percent would be too many: it is told when something else has changed.
            is_told = with_rates and vertex.state == "RUNNING" and vertex.percent is not None
            done = f" {format_percent(vertex.percent)}" if is_told else ""
            parts.append(f"{vertex.name}{at} {vertex.state.lower()}{done}".rstrip())
            continue
        if vertex.parallelism is None:
            continue
        tasks = "" if vertex.tasks is None else f"/{vertex.tasks}"
        parts.append(f"{vertex.name} {vertex.parallelism}{tasks}")
    if with_rates:
        rates = [vertex.records_out_per_second for vertex in seen.vertices if vertex.records_out_per_second]
        if rates:
            parts.append(f"{format_number(rates[0])} records/s")
        if seen.backlog is not None:
            input_time = f" ({format_ms(seen.backlog_ms)})" if seen.backlog_ms else ""
            parts.append(f"backlog {format_number(seen.backlog)}{input_time}")
    if seen.rescales and not seen.is_batch:
        newest = seen.rescales[0]
        parts.append(f"last rescale {newest['triggerCause']} {newest['terminalState'] or 'in progress'}")
    if seen.failure is not None:
        parts.append(seen.failure)
    return "  ".join(parts)


def render(seen: Look) -> RenderableType:
    """The live view."""
    title = Text.assemble(
        (seen.name, "bold"),
        "  ",
        (seen.status, STATUS_STYLES.get(seen.status, "")),
        f" ({seen.phase})" if seen.phase and not seen.ended else "",
        f"  {seen.job_id}",
    )
    parts: list[RenderableType] = [title]
    if line := load_line(seen):
        parts.append(Text(line))
    parts.append(Table(_BATCH if seen.is_batch else _STREAMING, seen.vertices).rich())
    parts += [Text(sentence, style="yellow") for sentence in seen.sentences if not seen.ended]
    if seen.rescales and not seen.is_batch:
        width = shutil.get_terminal_size().columns
        parts += [Text(""), rescales.history_text(list(seen.rescales), width)]
    return Group(*parts)


def load_line(seen: Look) -> str:
    """`backlog 1,200, 30.0 s of input  watermark 12.0 s behind  last batch 800 ms`: what is known of it."""
    parts = []
    if seen.backlog is not None:
        input_time = f", {format_ms(seen.backlog_ms)} of input" if seen.backlog_ms else ""
        parts.append(f"backlog {format_number(seen.backlog)}{input_time}")
    if seen.lag_ms is not None:
        parts.append(f"watermark {format_ms(seen.lag_ms)} behind")
    if seen.batch_ms is not None:
        parts.append(f"last batch {format_ms(seen.batch_ms)}")
    return "  ".join(parts)


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
    try:
        values: list[Json] = client.get(path, {"get": ",".join(METRICS)})
    except Refused as error:
        if error.status != 404:
            raise
        # The first query of a program has come meanwhile, or another version.
        return {}
    return {item["id"]: float(item["avg" if item["id"] in PER_SUBTASK else "sum"]) for item in values}

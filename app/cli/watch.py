"""`slotwise watch`: a job, live."""

from __future__ import annotations

import shutil
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from app.cli import rescales
from app.cli.client import Client
from app.cli.errors import CliError
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
from app.cli.snapshot import Look, look
from app.cli.streams import JobChanges, is_away

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
            now = seen.as_json() if as_json else plain_line(seen, with_rates=False)
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

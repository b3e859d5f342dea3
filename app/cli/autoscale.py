"""`slotwise autoscale`: the reference autoscaler for one job, with a live view of figures, decisions and reasons."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from app.autoscaler.loop import Loop, Refusal, Turn
from app.autoscaler.policy import Policy
from app.autoscaler.reading import NotScalable
from app.autoscaler.seen import Action, Decision, Snapshot
from app.cli.autoscale_policy import read_policy
from app.cli.client import Client, Json
from app.cli.errors import CliError, NoServer, Refused, Stranger, UsageError
from app.cli.options import Call, JobArgument, path_of
from app.cli.output import (
    Columns,
    Table,
    format_ms,
    format_number,
    format_time,
    is_terminal,
    print_json,
    say,
    until_interrupted,
)
from app.cli.submit import read_document
from app.model.grapherrors import GraphErrors

_CHANGES_SHOWN: Final = 8


def autoscale(
    job: JobArgument,
    call: Call,
    policy_file: Annotated[
        Path | None,
        typer.Option(
            "--policy",
            metavar="FILE",
            parser=path_of,
            show_default=False,
            help="YAML or JSON (docs/autoscaler.md); without it the defaults hold.",
        ),
    ] = None,
    recommend_only: Annotated[
        bool, typer.Option("--recommend-only", help="Print decisions and reasons; declare nothing.")
    ] = False,
) -> None:
    """Declare upper bounds by the load of a streaming job, until it ends or Ctrl-C."""
    policy = _policy(policy_file)
    if recommend_only:
        policy = replace(policy, recommend_only=True)
    client, job_id = call.client, call.client.find_job(job, "change")
    _refuse_unknown_vertices(client, job_id, policy)
    loop = Loop(_Server(client), job_id, policy)
    with until_interrupted():
        if call.as_json:
            _run(loop, lambda turn: print_json(turn_as_json(turn), compact=True))
        elif is_terminal():
            _run_live(loop)
        else:
            _run(loop, _Lines())


def _policy(path: Path | None) -> Policy:
    if path is None:
        return Policy()
    try:
        return read_policy(read_document(path, "policy", "a mapping such as targetUtilization: 0.7"))
    except GraphErrors as error:
        raise UsageError(f"The policy {path} cannot be used.", *error.errors) from None


def _refuse_unknown_vertices(client: Client, job_id: str, policy: Policy) -> None:
    names = {each["name"] for each in client.get(f"/jobs/{job_id}")["vertices"]}
    if unknown := [name for name in policy.vertices if name not in names]:
        raise UsageError(
            *(
                f"The policy has limits for {name!r}, which is not a vertex of the job; its vertices are "
                f"{', '.join(sorted(names))}."
                for name in unknown
            )
        )


class _Server:
    """The client of the command line, as the loop needs it."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def get(self, path: str) -> tuple[Json, str | None]:
        answer, headers = self._request("GET", path)
        return answer, headers.get("ETag")

    def put(self, path: str, body: Json, *, if_match: str | None, reason: str) -> None:
        headers = {"X-Slotwise-Reason": reason} | ({} if if_match is None else {"If-Match": if_match})
        self._request("PUT", path, body=body, headers=headers)

    def _request(self, method: str, path: str, **rest: Any) -> tuple[Json, Any]:
        try:
            # The loop has a patience of its own: it looks again before it repeats anything.
            return self._client.request(method, path, patience_s=0, **rest)
        except (Refused, NoServer) as error:
            is_ours = isinstance(error, Refused) and not isinstance(error, Stranger)
            raise Refusal(getattr(error, "status", None) if is_ours else None, str(error)) from error


def _run(loop: Loop, tell: Callable[[Turn], None]) -> None:
    while True:
        try:
            turn = loop.turn()
        except (Refusal, NotScalable) as error:
            raise CliError(str(error)) from None
        tell(turn)
        if turn.ended is not None:
            return
        time.sleep(turn.pause_ms / 1000)


def _run_live(loop: Loop) -> None:
    changes: deque[str] = deque(maxlen=_CHANGES_SHOWN)
    with Live(Text("Looking at the job ..."), console=Console(), auto_refresh=False) as live:

        def show(turn: Turn) -> None:
            if is_news(turn):
                changes.append(f"{format_time(_now_ms(turn))}  {words_of(turn)}")
            live.update(render(turn, list(changes)), refresh=True)

        _run(loop, show)


class _Lines:
    """A line for each turn that says something else than the last one, apart from its figures."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, turn: Turn) -> None:
        words = words_of(turn)
        kind = "".join(letter for letter in words if not letter.isdigit())
        if is_news(turn) or kind != self._last:
            say(f"{format_time(_now_ms(turn))}  {words}")
        self._last = kind


def _now_ms(turn: Turn) -> int:
    return int(time.time() * 1000) if turn.seen is None else turn.seen.now_ms


def is_news(turn: Turn) -> bool:
    """Whether it is more than another look."""
    return turn.decision is None or turn.decision.action is not Action.NONE


def words_of(turn: Turn) -> str:
    if turn.ended is not None:
        return f"The job is {turn.ended}."
    if turn.trouble is not None:
        return f"{turn.trouble} The next try is in {format_ms(turn.pause_ms)}."
    assert turn.decision is not None
    return turn.decision.reason


def turn_as_json(turn: Turn) -> dict[str, Any]:
    """What was seen, what was decided and why."""
    found: dict[str, Any] = {"timestampInMillis": _now_ms(turn), "declared": turn.has_declared}
    if turn.ended is not None:
        found["ended"] = turn.ended
    if turn.trouble is not None:
        found["trouble"] = turn.trouble
    if turn.seen is None or turn.decision is None:
        return found
    seen, decision = turn.seen, turn.decision
    names = {each.id: each.name for each in seen.vertices}
    load = seen.load
    return found | {
        "status": seen.status,
        "action": decision.action,
        "reason": decision.reason,
        "upper": {names[vertex_id]: value for vertex_id, value in decision.upper.items()},
        "utilization": decision.utilization,
        "expectedUtilization": decision.expected,
        "wantedRecordsPerSecond": decision.rows_per_second,
        "recordsPerSecond": None if load is None else load.rows_per_second,
        "pendingRecords": None if load is None else load.backlog_rows,
        "vertices": {
            each.name: {
                "lowerBound": each.lower,
                "upperBound": each.upper,
                "floor": each.operator.floor,
                "ceiling": each.operator.ceiling,
                "parallelism": each.parallelism,
                "recommended": _recommended(seen, decision, each.id),
                "busyTimeMsPerSecond": each.busy_ms,
                "skew": each.skew,
            }
            for each in seen.vertices
        },
    }


def _recommended(seen: Snapshot, decision: Decision, vertex_id: str) -> int | None:
    """By the load of this moment; None if nothing could be said."""
    newest = decision.memory.recommended[-1] if decision.memory.recommended else None
    return None if newest is None or newest.at_ms != seen.now_ms else newest.tasks.get(vertex_id)


def render(turn: Turn, changes: list[str]) -> RenderableType:
    """The live view: what it sees, what it decides and why, and what it did lately."""
    parts: list[RenderableType] = []
    if turn.seen is not None and turn.decision is not None:
        parts += [
            Text(figures_line(turn.seen, turn.decision), style="bold"),
            _table(turn.seen, turn.decision),
        ]
    style = "yellow" if turn.trouble else "green" if turn.has_declared else ""
    parts += [Text(words_of(turn), style=style), Text("")]
    return Group(*parts, *(Text(change) for change in changes))


def figures_line(seen: Snapshot, decision: Decision) -> str:
    """`RUNNING  120 records/s  backlog 2,700  needs 81 % of the time, 58 % as recommended`"""
    parts = [seen.status]
    if seen.load is not None:
        parts.append(f"{format_number(seen.load.rows_per_second)} records/s")
        if seen.load.backlog_rows is not None:
            parts.append(f"backlog {format_number(seen.load.backlog_rows)}")
    if decision.utilization is not None and decision.expected is not None:
        used = f"needs {100 * decision.utilization:.0f} % of the time"
        parts.append(f"{used}, {100 * decision.expected:.0f} % as recommended")
    return "  ".join(parts)


def _table(seen: Snapshot, decision: Decision) -> RenderableType:
    columns: Columns = {
        "~vertex": lambda each: each.name,
        ">lower": lambda each: each.lower,
        ">upper": lambda each: each.upper,
        ">parallelism": lambda each: each.parallelism,
        ">recommended": lambda each: _recommended(seen, decision, each.id),
        ">busy": lambda each: f"{each.busy_ms / 10:.0f} %",
        ">longest task": lambda each: f"{each.busy_ms * each.skew / 10:.0f} %",
    }
    limits: Columns = {
        ">floor": lambda each: each.operator.floor,
        ">ceiling": lambda each: each.operator.ceiling,
    }
    is_limited = any(each.operator for each in seen.vertices)
    return Table({**columns, **(limits if is_limited else {})}, seen.vertices).rich()

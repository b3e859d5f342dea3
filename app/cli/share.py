"""`slotwise share`: the weight, priority and cap of a job among the others."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from app.cli.client import Client
from app.cli.errors import UsageError
from app.cli.options import JobArgument, JsonOption, ReasonOption, ServerOption, TokenOption
from app.cli.output import format_moment, or_dash, print_json, say, say_changed, say_wrapped, show_table
from app.model.slot_share import CAP_MAX, PRIORITY_MAX, WEIGHT_MAX

NO_CAP = "none"

_FIELDS = ("weight", "priority", "cap")


def share(
    job: JobArgument,
    weight: Annotated[
        int | None,
        typer.Option(
            "--weight",
            metavar=f"1..{WEIGHT_MAX}",
            help="A job of weight 2 has twice the share of one of weight 1.",
        ),
    ] = None,
    priority: Annotated[
        int | None,
        typer.Option(
            "--priority",
            metavar=f"-{PRIORITY_MAX}..{PRIORITY_MAX}",
            help="Who is admitted first: higher before lower.",
        ),
    ] = None,
    cap: Annotated[
        str | None,
        typer.Option(
            "--cap", metavar="SLOTS", help=f"The most slots that the job may hold; {NO_CAP} for no limit."
        ),
    ] = None,
    reason: ReasonOption = None,
    as_json: JsonOption = False,
    server: ServerOption = None,
    token_file: TokenOption = None,
) -> None:
    """Show the slot share of a job, or change the numbers that are given."""
    wanted = _wanted(weight, priority, cap)
    if reason is not None and not wanted:
        raise UsageError("--reason goes with a change: give --weight, --priority or --cap.")
    with Client(server, token_file) as client:
        job_id = client.find_job(job, "change" if wanted else "look")
        changed = False
        if wanted:
            path = f"/jobs/{job_id}/slot-share"
            changed, _ = client.declare(
                path, lambda current: {name: current[name] for name in _FIELDS} | wanted, reason=reason
            )
        explained = client.get(f"/jobs/{job_id}/explanation")
    if as_json:
        told = explained["slotShare"]
        print_json({"jobid": job_id, "changed": changed, **told} if wanted else {"jobid": job_id, **told})
        return
    if wanted and not changed:
        say("They are these already; nothing changed.")
    _show(explained)


def _wanted(weight: int | None, priority: int | None, cap: str | None) -> dict[str, int | None]:
    errors = []
    wanted: dict[str, int | None] = {}
    for name, value, lowest, highest in (
        ("weight", weight, 1, WEIGHT_MAX),
        ("priority", priority, -PRIORITY_MAX, PRIORITY_MAX),
    ):
        if value is None:
            continue
        wanted[name] = value
        if not lowest <= value <= highest:
            errors.append(f"--{name} should be a whole number from {lowest} to {highest}, found {value}.")
    if cap == NO_CAP:
        wanted["cap"] = None
    elif cap is not None:
        if cap.isascii() and cap.isdigit() and len(cap) < 10 and 1 <= int(cap) <= CAP_MAX:
            wanted["cap"] = int(cap)
        else:
            errors.append(f"--cap should be a whole number from 1 to {CAP_MAX}, or {NO_CAP}, found {cap!r}.")
    if errors:
        raise UsageError(*errors)
    return wanted


def _show(explained: dict[str, Any]) -> None:
    told = explained["slotShare"]
    cells = [
        str(told["weight"]),
        str(told["priority"]),
        or_dash(told["cap"]),
        str(explained["slots"]["held"]),
        or_dash(told["share"]),
        or_dash(told["why"]),
    ]
    headers = ["weight", "priority", "cap", "held", "share", "why"]
    show_table(headers, [cells], right=headers[:5])
    say_changed(told)
    if told["dueTimestampInMillis"] is not None:
        say_wrapped(
            f"What it holds beyond its share may be taken from {format_moment(told['dueTimestampInMillis'])} on."
        )

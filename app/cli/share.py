"""`slotwise share`: the weight, priority and cap of a job among the others."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from app.cli.errors import UsageError
from app.cli.options import Call, JobArgument, ReasonOption
from app.cli.output import format_moment, or_dash, say, say_changed, say_wrapped, show_table
from app.model.slot_share import CAP_MAX, PRIORITY_MAX, WEIGHT_MAX

NO_CAP = "none"

_FIELDS = ("weight", "priority", "cap")


def share(
    job: JobArgument,
    call: Call,
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
) -> None:
    """Show the slot share of a job, or change the numbers that are given."""
    wanted = _wanted(weight, priority, cap)
    if reason is not None and not wanted:
        raise UsageError("--reason goes with a change: give --weight, --priority or --cap.")
    client, job_id = call.client, call.client.find_job(job, "change" if wanted else "look")
    changed = False
    if wanted:
        path = f"/jobs/{job_id}/slot-share"
        changed, _, _ = client.declare(
            path, lambda current: {name: current[name] for name in _FIELDS} | wanted, reason=reason
        )
    explained = client.get(f"/jobs/{job_id}/explanation")
    if wanted and not changed and not call.as_json:
        say("They are these already; nothing changed.")
    told = ({"changed": changed} if wanted else {}) | explained["slotShare"]
    call.answer({"jobid": job_id, **told}, lambda _: _show(explained))


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
    columns = {
        ">weight": lambda each: each["weight"],
        ">priority": lambda each: each["priority"],
        ">cap": lambda each: each["cap"],
        ">held": lambda _: explained["slots"]["held"],
        ">share": lambda each: each["share"],
        "why": lambda each: or_dash(each["why"]),
    }
    show_table(columns, [told])
    say_changed(told)
    if told["dueTimestampInMillis"] is not None:
        say_wrapped(
            f"What it holds beyond its share may be taken from {format_moment(told['dueTimestampInMillis'])} on."
        )

"""`slotwise policy`: the floor and ceiling of the vertices of a job."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Any, Final

import typer

from app.cli.client import Client
from app.cli.errors import UsageError
from app.cli.options import Call, DryRunOption, JobArgument, ReasonOption, by_vertex
from app.cli.output import Columns, format_moment, or_dash, say, say_changed, show_table
from app.cli.require import show_dry_run

_NONE: Final = "none"
_LIMITS: Final = re.compile(rf"([1-9][0-9]{{0,8}}|{_NONE})?:([1-9][0-9]{{0,8}}|{_NONE})?\Z")
_HISTORY_MAX: Final = 20

Limits = dict[str, int | None]
"""``floor`` and ``ceiling``, as far as they are given; None removes one."""


def policy(
    job: JobArgument,
    call: Call,
    limits: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="VERTEX=FLOOR:CEILING...",
            show_default=False,
            help="delays=2:8; either may be left out to keep it, none removes it.",
        ),
    ] = None,
    everywhere: Annotated[
        str | None,
        typer.Option(
            "--all",
            metavar="FLOOR:CEILING",
            show_default=False,
            help="For every vertex without its own limit.",
        ),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove every floor and ceiling first.")] = False,
    dry_run: DryRunOption = False,
    history: Annotated[
        bool, typer.Option("--history", help="Show the policies before, who set them and why.")
    ] = False,
    reason: ReasonOption = None,
) -> None:
    """Show the floor and ceiling of the vertices of a job, or change those that are given."""
    wanted, wanted_everywhere = _parsed(limits or [], everywhere)
    changes = bool(wanted or wanted_everywhere or clear)
    _check_options(changes=changes, dry_run=dry_run, history=history, reason=reason)
    client, job_id = call.client, call.client.find_job(job, "change" if changes and not dry_run else "look")
    path = f"/jobs/{job_id}/scaling-policy"

    def changed(current: dict[str, Any]) -> dict[str, Any]:
        base = {"allVertices": {}, "vertices": {}} if clear else current
        return merged(client, job_id, base, wanted, wanted_everywhere)

    if history:
        found = client.get(f"{path}/history", {"limit": _HISTORY_MAX})
        call.answer(found, partial(_show_history, client, job_id))
    elif dry_run:
        body = changed(client.get(path))
        answer, _ = client.request("PUT", path, params={"dryRun": "true"}, body=body)
        show_dry_run(call, job_id, answer)
    else:
        told: dict[str, Any] = {}
        if changes:
            was_change, version, _ = client.declare(path, changed, reason=reason)
            told = {"changed": was_change, "version": version}
            if not call.as_json:
                unchanged = "They are these already; nothing changed."
                say(f"Accepted as version {version}." if was_change else unchanged)
        limits_now = client.get(path)
        call.answer({"jobid": job_id, **told, **limits_now}, partial(_show, client, job_id))


def _check_options(*, changes: bool, dry_run: bool, history: bool, reason: str | None) -> None:
    if (reason is not None or dry_run) and not changes:
        raise UsageError(
            "--reason and --dry-run go with a change: give VERTEX=FLOOR:CEILING, --all or --clear."
        )
    if history and changes:
        raise UsageError("--history shows, and changes nothing: leave it out to change something.")


def _parsed(texts: list[str], everywhere: str | None) -> tuple[dict[str, Limits], Limits]:
    """The limits by vertex name or id, and those of --all; all errors at once."""
    wanted: dict[str, Limits] = {}
    errors: list[str] = []
    try:
        form = "VERTEX=FLOOR:CEILING, for example delays=2:8, delays=2: or delays=none:8"
        wanted = by_vertex(texts, _limits, form)
    except UsageError as error:
        errors += error.errors
    for_all = {} if everywhere is None else _limits(everywhere)
    if for_all is None:
        errors.append(
            f"--all {everywhere!r} is not FLOOR:CEILING, for example --all 1:8, --all :8 or --all none: ."
        )
    if errors:
        raise UsageError(*errors)
    return wanted, for_all or {}


def _limits(numbers: str) -> Limits | None:
    match = _LIMITS.match(numbers)
    if match is None or numbers == ":":
        return None
    given = zip(("floor", "ceiling"), match.groups(), strict=True)
    return {name: None if text == _NONE else int(text) for name, text in given if text is not None}


def merged(
    client: Client, job_id: str, current: dict[str, Any], wanted: dict[str, Limits], everywhere: Limits
) -> dict[str, Any]:
    """``current``, a policy as GET answers it, with ``wanted`` and ``everywhere`` put in."""
    vertices = dict(current["vertices"])
    for name, vertex_id in client.vertices_named(job_id, wanted).items() if wanted else ():
        vertices[vertex_id] = {**vertices.get(vertex_id, {}), **wanted[name]}
    return {"allVertices": {**current["allVertices"], **everywhere}, "vertices": vertices}


def _show(client: Client, job_id: str, limits: dict[str, Any]) -> None:
    """Per vertex: the bounds that were declared, the limits, what counts, and what is in force."""
    explained = client.get(f"/jobs/{job_id}/explanation")

    def limit(vertex_id: str, name: str) -> object:
        return {**limits["allVertices"], **_given(limits["vertices"].get(vertex_id, {}))}.get(name)

    columns: Columns = {
        "vertex": lambda each: each[1]["name"],
        ">declared": lambda each: f"{each[1]['lowerBound']} to {each[1]['upperBound']}",
        ">floor": lambda each: limit(each[0], "floor"),
        ">ceiling": lambda each: limit(each[0], "ceiling"),
        ">counts": lambda each: f"{each[1]['effectiveLowerBound']} to {each[1]['effectiveUpperBound']}",
        ">in force": lambda each: each[1]["inForce"],
    }
    show_table(columns, explained["vertices"].items())
    say_changed(explained["scalingPolicy"])


def _given(limits: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in limits.items() if value is not None}


def _show_history(client: Client, job_id: str, versions: list[dict[str, Any]]) -> None:
    names = {vertex["id"]: vertex["name"] for vertex in client.get(f"/jobs/{job_id}")["vertices"]}
    columns: Columns = {
        ">version": lambda one: one["version"],
        "set": lambda one: format_moment(one["changedTimestampInMillis"]),
        "by": lambda one: or_dash(one["requestedBy"]),
        "floor:ceiling": lambda one: _in_words(one, names),
        "reason": lambda one: or_dash(one["reason"]),
    }
    show_table(columns, versions)


def _in_words(version: dict[str, Any], names: dict[str, str]) -> str:
    """'all 1:8, delays 2:'"""
    own = [("all", version["allVertices"])]
    own += [(names.get(vertex, vertex), limits) for vertex, limits in version["vertices"].items()]
    told = [
        f"{name} {limits.get('floor') or ''}:{limits.get('ceiling') or ''}"
        for name, limits in own
        if _given(limits)
    ]
    return ", ".join(told) or _NONE

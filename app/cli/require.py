"""`slotwise require`: declare the bounds of parallelism by vertex name."""

from __future__ import annotations

import re
import time
from typing import Annotated, Any

import typer

from app.cli.client import Client
from app.cli.errors import CliError, Refused, UsageError
from app.cli.options import JobArgument, JsonOption, ServerOption, TokenOption
from app.cli.output import print_json, say, show_table

MAX_TRIES = 5
_BOUNDS = re.compile(r"(-?\d{1,9})?:(-?\d{1,9})?\Z")

Wanted = dict[str, tuple[int | None, int | None]]
"""Vertex name or id -> (lower, upper); None keeps the bound as it is."""


def require(
    job: JobArgument,
    bounds: Annotated[
        list[str],
        typer.Argument(
            metavar="VERTEX=LOWER:UPPER...",
            show_default=False,
            help="delays=1:4; either number may be left out to keep it, -1 is the default.",
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would happen; change nothing.")
    ] = False,
    reason: Annotated[str | None, typer.Option("--reason", help="Free text, kept in the history.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Return once the rescale has ended.")] = False,
    as_json: JsonOption = False,
    server: ServerOption = None,
    token_file: TokenOption = None,
) -> None:
    """Change the bounds of the vertices named; the others keep theirs."""
    wanted = parse_bounds(bounds)
    if reason is not None and not reason.isprintable():
        raise UsageError("--reason should be one line of text without control characters.")
    with Client(server, token_file) as client:
        job_id = client.find_job(job)
        if dry_run:
            show_dry_run(client, job_id, ask_dry_run(client, job_id, wanted), as_json)
            return
        before = newest_rescale(client, job_id)
        changed, version = declare(client, job_id, wanted, reason)
        record = wait_for_rescale(client, job_id, before) if wait and changed else None
    if as_json:
        print_json({"jobid": job_id, "changed": changed, "version": version, "rescale": record})
    elif not changed:
        say(f"The bounds are these already (version {version}); nothing changed.")
    elif record is None:
        say(f"Accepted as version {version}.")
    else:
        rung = f", {record['rung']}" if record.get("rung") else ""
        say(f"Version {version}: {record['terminalState']}, {record['terminatedReason']}{rung}.")
    if record is not None and record["terminalState"] == "FAILED":
        raise CliError("The rescale failed; see: slotwise rescales " + job)


def parse_bounds(texts: list[str]) -> Wanted:
    """`name=lower:upper` arguments, all errors at once."""
    wanted: Wanted = {}
    errors = []
    for text in texts:
        name, equals, numbers = text.rpartition("=")
        match = _BOUNDS.match(numbers)
        if not equals or not name or match is None or numbers == ":":
            errors.append(
                f"{text!r} is not VERTEX=LOWER:UPPER, for example delays=1:4, delays=:4 or delays=2: ."
            )
            continue
        if name in wanted:
            errors.append(f"{name!r} is given twice.")
        lower, upper = match.groups()
        wanted[name] = (None if lower is None else int(lower), None if upper is None else int(upper))
    if errors:
        raise UsageError(*errors)
    return wanted


def merged(client: Client, job_id: str, wanted: Wanted) -> tuple[dict[str, Any], str | None]:
    """The bounds of every vertex with ``wanted`` put in, and the ETag that they were read under."""
    current, headers = client.request("GET", f"/jobs/{job_id}/resource-requirements")
    ids: dict[str, list[str]] = {}
    for vertex in client.get(f"/jobs/{job_id}")["vertices"]:
        ids.setdefault(vertex["name"], []).append(vertex["id"])
    errors = []
    for name, (lower, upper) in wanted.items():
        found = [name] if name in current else ids.get(name, [])
        if len(found) != 1:
            problem = "is the name of several vertices; give an id" if found else "is not a vertex of the job"
            errors.append(f"{name!r} {problem}: {', '.join(ids)}.")
            continue
        bounds = current[found[0]]["parallelism"]
        if lower is not None:
            bounds["lowerBound"] = lower
        if upper is not None:
            bounds["upperBound"] = upper
    if errors:
        raise CliError(*errors)
    return current, headers.get("ETag")


def declare(client: Client, job_id: str, wanted: Wanted, reason: str | None) -> tuple[bool, int | None]:
    """PUT the bounds under If-Match, again when someone else was faster; (changed, version in force)."""
    path = f"/jobs/{job_id}/resource-requirements"
    for attempt in range(1, MAX_TRIES + 1):
        body, etag = merged(client, job_id, wanted)
        headers = {} if etag is None else {"If-Match": etag}
        if reason:
            headers["X-Slotwise-Reason"] = reason
        try:
            _, answer = client.request("PUT", path, body=body, headers=headers)
        except Refused as refused:
            if refused.status != 412 or attempt == MAX_TRIES:
                raise
            time.sleep(0.05 * attempt)
            continue
        return _changed(etag, answer.get("ETag")), _version(answer.get("ETag"))
    raise AssertionError("unreachable")


def _changed(before: str | None, after: str | None) -> bool:
    return before is None or after is None or before != after


def _version(etag: str | None) -> int | None:
    digits = (etag or "").strip('W/"')
    return int(digits) if digits.isdigit() else None


def ask_dry_run(client: Client, job_id: str, wanted: Wanted) -> dict[str, Any]:
    body, _ = merged(client, job_id, wanted)
    path = f"/jobs/{job_id}/resource-requirements"
    answer, _ = client.request("PUT", path, params={"dryRun": "true"}, body=body)
    return dict(answer)


def newest_rescale(client: Client, job_id: str) -> str | None:
    records = client.get(f"/jobs/{job_id}/rescales/history", {"limit": 1})
    return str(records[0]["rescaleUuid"]) if records else None


def wait_for_rescale(client: Client, job_id: str, before: str | None) -> dict[str, Any]:
    """The first record after ``before`` that has ended, waiting for it."""
    while True:
        records = client.get(f"/jobs/{job_id}/rescales/history", {"limit": 20})
        newer: list[dict[str, Any]] = []
        for record in records:
            if record["rescaleUuid"] == before:
                break
            newer.append(record)
        ended = [record for record in newer if record["terminalState"]]
        if ended:
            return ended[-1]
        time.sleep(0.2)


def show_dry_run(client: Client, job_id: str, answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        _print_dry_run(client, job_id, answer)
    if answer.get("refused"):
        raise CliError(*[str(sentence) for sentence in answer["refused"]])


def _print_dry_run(client: Client, job_id: str, answer: dict[str, Any]) -> None:
    names = {vertex["id"]: vertex["name"] for vertex in client.get(f"/jobs/{job_id}")["vertices"]}
    current = answer.get("currentParallelism") or {}
    decided = answer.get("parallelism") or {}
    rows = [
        [name, str(current.get(vertex_id, "-")), str(decided.get(vertex_id, "-"))]
        for vertex_id, name in names.items()
    ]
    show_table(["vertex", "now", "then"], rows, right=["now", "then"])
    say(f"slots: {answer.get('slotsBefore')} now, {answer.get('slotsAfter')} then")
    say(f"rung: {answer.get('rung') or 'none'}")
    for sentence in answer.get("explanation") or []:
        say(str(sentence))

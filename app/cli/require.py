"""`slotwise require`: declare the bounds of parallelism by vertex name."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any

import typer

from app.cli.client import Client, Headers
from app.cli.errors import CliError, TakenBack, UsageError
from app.cli.events import JobChanges
from app.cli.held import Held, show_unchanged, undoes, with_earlier_deadlines
from app.cli.jobs import accepted, status_of
from app.cli.options import Call, DryRunOption, JobArgument, ReasonOption, by_vertex
from app.cli.output import Columns, format_ms, or_dash, say, say_wrapped, show_table, warn
from app.cli.rescales import duration_ms, history, sentence_of
from app.cli.waiting import ClusterWatch
from app.model.requirements import OnTimeout
from app.model.rescale import TerminatedReason
from app.model.status import TERMINAL_STATUSES

NO_RECORD_PATIENCE_S = 10.0
"""A change that has left no record for so long leaves none: no rescale follows from it."""

_WORTH_TELLING_MS = 5_000
_RECORDS = 20
_RECORDS_MAX = 1_000
"""The newest ones, among which the records of a change are."""
_FAILOVER = TerminatedReason.JOB_FAILOVER_RESTARTING
_OVERTAKEN = TerminatedReason.RESOURCE_REQUIREMENTS_UPDATED
_DONE = (TerminatedReason.SUCCEEDED, TerminatedReason.NO_RESOURCES_OR_PARALLELISMS_CHANGE)
_NUMBER = re.compile(r"[1-9][0-9]{0,8}\Z")
_NO_PARTITIONS: Mapping[str, int] = MappingProxyType({})
_BOUNDS = re.compile(r"(-?[0-9]{1,9})?:(-?[0-9]{1,9})?\Z")

Wanted = dict[str, tuple[int | None, int | None]]
"""Vertex name or id -> (lower, upper); None keeps the bound as it is."""

DeadlineOption = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION|INSTANT",
        show_default=False,
        help="Until when the bounds may wait for all their slots, while the former ones hold: 120s, 5min, or "
        "2026-11-26T03:00:00Z.",
    ),
]
OnTimeoutOption = Annotated[
    OnTimeout | None,
    typer.Option(
        show_default=False,
        case_sensitive=False,
        help="What happens at the deadline: COMMIT uses the available slots, ROLLBACK (the default) "
        "brings the former bounds back.",
    ),
]


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
    call: Call,
    state_partitions: Annotated[
        list[str] | None,
        typer.Option(
            "--state-partitions",
            metavar="VERTEX=NUMBER",
            show_default=False,
            help="Redistribute the state of a vertex to this number of partitions: the job is drained and restarted. "
            "More are made without this where an upper bound asks for them.",
        ),
    ] = None,
    dry_run: DryRunOption = False,
    retry: Annotated[bool, typer.Option("--retry", help="Try bounds again that were taken back.")] = False,
    reason: ReasonOption = None,
    deadline: DeadlineOption = None,
    on_timeout: OnTimeoutOption = None,
    wait: Annotated[bool, typer.Option("--wait", help="Return once the rescale has ended.")] = False,
) -> None:
    """Change the bounds of the vertices named; the others keep theirs."""
    wanted = parse_bounds(bounds)
    partitions = parse_partitions(state_partitions or [])
    headers = deadline_headers(deadline, on_timeout)
    client, job_id = call.client, call.client.find_job(job, "change")
    if dry_run:
        asked = ask_dry_run(client, job_id, wanted, partitions, retry=retry, headers=headers)
        show_dry_run(call, job_id, asked)
        return
    before = newest_record(client, job_id)
    changed, version, answer = declare(
        client, job_id, wanted, reason, partitions, retry=retry, headers=headers
    )
    record, back, short, earlier, began = None, None, [], [], time.monotonic()
    if changed:
        with accepted(f"The bounds were accepted as version {version}, and stay so."):
            earlier = with_earlier_deadlines(client, job_id, answer, wanted)
            if earlier:
                warn(f"The deadline does not count for {', '.join(earlier)}, whose bounds have one already.")
            if wait:
                held = Held(client, job_id, version) if headers else None
                record = wait_for_rescale(client, job_id, before, held)
                short = missing(client, job_id)
                back = taken_back(client, job_id, record)
    waited_ms = int((time.monotonic() - began) * 1000)
    told = {"jobid": job_id, "changed": changed, "version": version}
    told |= {"rescale": record, "missing": short, "earlierDeadlines": earlier}
    if not changed:
        told["explanation"] = ask_dry_run(client, job_id, wanted, partitions, headers=headers).get(
            "explanation"
        )
        call.answer(told, show_unchanged)
    elif record is None:
        nothing = " No rescale followed from it." if wait else ""
        call.answer(told, f"Accepted as version {version}.{nothing}")
    else:
        call.answer(told, partial(_show_outcome, record, waited_ms))
    for sentence in short:
        warn(sentence)
    _refuse_end(job, bounds, record, back)


def _show_outcome(record: dict[str, Any], waited_ms: int, told: dict[str, Any]) -> None:
    say_wrapped(f"Version {told['version']}: {sentence_of(record)}.")
    if waited_ms > (duration_ms(record) or 0) + _WORTH_TELLING_MS:
        say_wrapped(f"From the request on it took {format_ms(waited_ms)}.")


def _refuse_end(
    job: str, bounds: list[str], record: dict[str, Any] | None, back: dict[str, Any] | None
) -> None:
    """The error of a rescale that did not succeed, or was taken back."""
    if back is not None and "rollbackOf" in back:
        raise TakenBack(f"{back['message']}", "The former bounds are declared again; the job runs as before.")
    if back is not None:
        raise TakenBack(
            f"The rescale was taken back: {back['reason']}",
            f"The job runs as before; the bounds stay declared. To try them again: slotwise require {job} "
            f"{' '.join(bounds)} --retry",
        )
    if record is not None and record["terminatedReason"] not in _DONE:
        why = ": ".join(str(part) for part in (record["terminatedReason"], record.get("message")) if part)
        raise CliError(f"The rescale did not succeed: {why}", f"See: slotwise rescales {job}")


def parse_bounds(texts: list[str]) -> Wanted:
    """`name=lower:upper` arguments, all errors at once."""

    def read(numbers: str) -> tuple[int | None, int | None] | None:
        match = _BOUNDS.match(numbers)
        if match is None or numbers == ":":
            return None
        lower, upper = match.groups()
        return None if lower is None else int(lower), None if upper is None else int(upper)

    return by_vertex(texts, read, "VERTEX=LOWER:UPPER, for example delays=1:4, delays=:4 or delays=2:")


def deadline_headers(deadline: str | None, on_timeout: OnTimeout | None) -> dict[str, str]:
    """What the server is told of --deadline and --on-timeout; it judges the deadline itself."""
    if deadline is None:
        if on_timeout is not None:
            raise UsageError("--on-timeout goes with --deadline, which is missing.")
        return {}
    if not deadline.isascii() or not deadline.isprintable():
        raise UsageError(
            "--deadline should be a duration such as 120s, or an instant such as 2026-11-26T03:00:00Z."
        )
    return {
        "X-Slotwise-Deadline": deadline,
        **({} if on_timeout is None else {"X-Slotwise-On-Timeout": on_timeout.value}),
    }


def parse_partitions(texts: list[str]) -> dict[str, int]:
    """`name=number` of --state-partitions, all errors at once."""
    form = "VERTEX=NUMBER, for example --state-partitions delays=6"
    return by_vertex(texts, lambda number: int(number) if _NUMBER.match(number) else None, form)


def merged(
    client: Client, job_id: str, current: dict[str, Any], wanted: Wanted, partitions: Mapping[str, int]
) -> dict[str, Any]:
    """``current``, the requirements of every vertex, with ``wanted`` and ``partitions`` put in."""
    for name, vertex_id in client.vertices_named(job_id, dict.fromkeys([*wanted, *partitions])).items():
        lower, upper = wanted.get(name, (None, None))
        bounds = current[vertex_id]["parallelism"]
        if lower is not None:
            bounds["lowerBound"] = lower
        if upper is not None:
            bounds["upperBound"] = upper
        if name in partitions:
            current[vertex_id]["statePartitions"] = partitions[name]
    return current


def declare(
    client: Client,
    job_id: str,
    wanted: Wanted,
    reason: str | None,
    partitions: Mapping[str, int] = _NO_PARTITIONS,
    *,
    retry: bool = False,
    headers: Mapping[str, str] | None = None,
) -> tuple[bool, int | None, Headers]:
    """Declare the bounds of the vertices named, as `Client.declare` does."""
    return client.declare(
        f"/jobs/{job_id}/resource-requirements",
        lambda current: merged(client, job_id, current, wanted, partitions),
        reason=reason,
        params={"retry": "true"} if retry else None,
        headers=headers,
    )


def ask_dry_run(
    client: Client,
    job_id: str,
    wanted: Wanted,
    partitions: Mapping[str, int] = _NO_PARTITIONS,
    *,
    retry: bool = False,
    headers: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    path = f"/jobs/{job_id}/resource-requirements"
    body = merged(client, job_id, client.get(path), wanted, partitions)
    params = {"dryRun": "true", **({"retry": "true"} if retry else {})}
    answer, _ = client.request("PUT", path, params=params, body=body, headers=headers)
    return dict(answer)


def newest_record(client: Client, job_id: str) -> dict[str, Any] | None:
    records = history(client, job_id, limit=1)
    return records[0] if records else None


def wait_for_rescale(
    client: Client, job_id: str, before: dict[str, Any] | None, held: Held | None = None
) -> dict[str, Any] | None:
    """The record that a change of the bounds leads to, once it has ended; None if there is none.

    ``before`` was the newest record when the change was declared. If it was open, the change may have become a part
    of it. ``held``: the bounds, if they have a deadline. If the rescale is taken back, the way back is waited for too.
    A record that a failover ended says nothing: the failover's own record brings the bounds into force. Each such
    record is told on stderr, so that a job that fails again and again is not waited for in silence.
    """
    told: set[str] = set()
    patience = time.monotonic() + NO_RECORD_PATIENCE_S
    watch = ClusterWatch(client, job_id)
    with JobChanges(client, job_id) as changes:
        while True:
            # Asked before the records: a job that has ended makes no further ones.
            over = status_of(client, job_id) in TERMINAL_STATUSES
            candidates = _records_since(client, job_id, before)
            waits = held is not None and held.wait(candidates)
            if waits:
                patience = time.monotonic() + NO_RECORD_PATIENCE_S
            elif held is not None:
                # What ended the wait may have come since.
                candidates = _records_since(client, job_id, before)
            outcomes = candidates if held is None or waits else held.outcomes(candidates, over=over)
            record = None if waits else _outcome(outcomes, candidates, over=over)
            if not over:
                _tell_of_failovers(candidates, record, told)
            if record is not None or over or (not outcomes and time.monotonic() > patience):
                return record
            watch.turn()
            changes.wait()


def _outcome(
    outcomes: list[dict[str, Any]], candidates: list[dict[str, Any]], *, over: bool
) -> dict[str, Any] | None:
    """The first of ``outcomes`` that has ended and says something, if a later one need not be waited for."""
    for record in outcomes:
        if not record["terminalState"]:
            # A later one that has ended says something of other bounds.
            return None
        back = _way_back(record, candidates)
        if back is not None and not (back["terminalState"] or _came_back(record, back) or over):
            # It says how the rescale ended only once the job runs again.
            return None
        if over or _came_back(record, back) or record["terminatedReason"] != _FAILOVER:
            return record
    return None


def _way_back(record: dict[str, Any], records: list[dict[str, Any]]) -> dict[str, Any] | None:
    return next((one for one in records if one.get("rollbackOf") == record["number"]), None)


def _came_back(record: dict[str, Any], back: dict[str, Any] | None) -> bool:
    """Whether the bounds of ``record`` were taken back. ``back``: the record whose ``rollbackOf`` it is."""
    overtaken = record["terminatedReason"] == _OVERTAKEN
    return overtaken or (back is not None and undoes(back, [record["number"]]))


def _tell_of_failovers(records: list[dict[str, Any]], outcome: dict[str, Any] | None, told: set[str]) -> None:
    """Those of ``records`` that were waited on from, to ``outcome`` if it has come."""
    for record in records:
        if record is outcome:
            return
        if record["terminatedReason"] == _FAILOVER and record["rescaleUuid"] not in told:
            told.add(record["rescaleUuid"])
            why = str(record.get("message") or "the job failed meanwhile").partition("\n")[0]
            warn(f"Waiting on: record {record['number']} ended by a failover ({why})")


def _records_since(client: Client, job_id: str, before: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Those after ``before``, oldest first; if there are none, ``before`` itself if it was open."""
    newer: list[dict[str, Any]] = []
    records = history(client, job_id, limit=_RECORDS)
    if before is not None and records and (count := records[0]["number"] - before["number"]) >= _RECORDS:
        # A job that fails often has many while bounds wait for their deadline.
        records = history(client, job_id, limit=min(count + 1, _RECORDS_MAX))
    for record in records:
        if before is not None and record["rescaleUuid"] == before["rescaleUuid"]:
            was_open = before["terminalState"] is None
            return newer[::-1] if newer or not was_open else [record]
        newer.append(record)
    return newer[::-1]


def taken_back(client: Client, job_id: str, record: dict[str, Any] | None) -> dict[str, Any] | None:
    """What the explanation says of the rescale of ``record`` if it was taken back, or the record of the way back if its
    bounds were."""
    if record is None:
        return None
    if record["terminatedReason"] != _OVERTAKEN:
        found: dict[str, Any] | None = client.get(f"/jobs/{job_id}/explanation").get("rollback")
        if found is not None and found["rescale"] == record["number"]:
            return found
    back = _way_back(record, history(client, job_id, limit=_RECORDS))
    return back if back is not None and _came_back(record, back) else None


def missing(client: Client, job_id: str) -> list[str]:
    """A sentence for each vertex that runs at less than its upper bound allows."""
    vertices = client.get(f"/jobs/{job_id}/explanation")["vertices"].values()
    sentences = []
    for vertex in vertices:
        in_force, upper, allowed = (vertex[key] for key in ("inForce", "upperBound", "effectiveUpperBound"))
        if in_force is not None and in_force < upper:
            limit = f"; its floor and ceiling allow {allowed}" if allowed < upper else ""
            sentences.append(f"{vertex['name']} runs at {in_force}; up to {upper} was asked for{limit}.")
    return sentences


def show_dry_run(call: Call, job_id: str, answer: dict[str, Any]) -> None:
    refused = answer.get("refused") or ()
    if call.as_json or not refused:
        call.answer(answer, partial(_print_dry_run, call.client, job_id))
    if refused:
        raise CliError(*map(str, refused))


def _print_dry_run(client: Client, job_id: str, answer: dict[str, Any]) -> None:
    columns: Columns = {
        "vertex": lambda vertex: vertex["name"],
        ">now": lambda vertex: (answer.get("currentParallelism") or {}).get(vertex["id"]),
        ">then": lambda vertex: (answer.get("parallelism") or {}).get(vertex["id"]),
    }
    show_table(columns, client.get(f"/jobs/{job_id}")["vertices"])
    say(f"slots: {or_dash(answer.get('slotsBefore'))} now, {or_dash(answer.get('slotsAfter'))} then")
    say(f"rung: {answer.get('rung') or 'none'}")
    for sentence in answer.get("explanation") or []:
        say_wrapped(str(sentence))

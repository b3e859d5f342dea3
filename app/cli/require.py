"""`slotwise require`: declare the bounds of parallelism by vertex name."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any

import typer

from app.cli.client import Client, Headers, Json
from app.cli.errors import CliError, TakenBack, UsageError
from app.cli.jobs import accepted
from app.cli.options import Call, DryRunOption, JobArgument, ReasonOption, by_vertex
from app.cli.outcome import Outcome, is_undoing, wait_for_outcome
from app.cli.output import Columns, format_ms, or_dash, say, say_wrapped, show_table, warn
from app.cli.rescales import duration_ms, sentence_of
from app.model.requirements import OnTimeout
from app.model.rescale import TerminatedReason, TriggerCause

_WORTH_TELLING_MS = 5_000
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
        help="Until when the bounds may wait for all their slots, while those before hold: 120s, 5min, or "
        "2026-11-26T03:00:00Z.",
    ),
]
OnTimeoutOption = Annotated[
    OnTimeout | None,
    typer.Option(
        show_default=False,
        case_sensitive=False,
        help="What happens at the deadline: COMMIT uses the available slots, ROLLBACK (the default) "
        "drops the new bounds.",
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
    changed, version, answer = declare(
        client, job_id, wanted, reason, partitions, retry=retry, headers=headers
    )
    if warning := answer.get("X-Slotwise-Warning"):
        warn(warning)
    outcome, short, earlier, began = Outcome(), [], [], time.monotonic()
    why = ""
    if changed:
        with accepted(client, f"The bounds were accepted as version {version}, and stay so."):
            earlier = _with_earlier_deadlines(client, job_id, answer, wanted)
            if earlier:
                warn(f"The deadline does not count for {', '.join(earlier)}, whose bounds have one already.")
            if wait:
                rescale, waits = answer.get("X-Slotwise-Rescale"), deadline is not None
                outcome = wait_for_outcome(client, job_id, version, rescale, has_deadline=waits)
                explained = client.get(f"/jobs/{job_id}/explanation")
                short, why = _missing(explained), _why_taken_back(explained, outcome)
    waited_ms = int((time.monotonic() - began) * 1000)
    told = {"jobid": job_id, "changed": changed, "version": version}
    told |= {"rescale": outcome.record, "missing": short, "earlierDeadlines": earlier}
    if not changed:
        told["explanation"] = ask_dry_run(client, job_id, wanted, partitions, headers=headers).get(
            "explanation"
        )
        call.answer(told, _show_unchanged)
    elif outcome.record is None:
        nothing = " No rescale followed from it." if wait else ""
        call.answer(told, f"Accepted as version {version}.{nothing}")
    else:
        call.answer(told, partial(_show_outcome, outcome.record, waited_ms))
    for sentence in short:
        warn(sentence)
    _refuse_end(job, bounds, outcome, why)


def _with_earlier_deadlines(client: Client, job_id: str, answer: Headers, names: Iterable[str]) -> list[str]:
    """Which of the vertices ``names`` wait for an earlier deadline on, as the headers ``answer`` say."""
    _, _, listed = answer.get("X-Slotwise-Deadline", "").partition('vertices="')
    ids = listed.rstrip('"').split(",") if listed else []
    named = client.vertices_named(job_id, names) if ids else {}
    return [name for name, vertex_id in named.items() if vertex_id in ids]


def _show_unchanged(told: dict[str, Any]) -> None:
    """The server says whether they wait, and what became of a deadline."""
    say(f"The bounds are these already (version {told['version']}); nothing changed.")
    for sentence in told["explanation"] or []:
        say_wrapped(sentence)


def _show_outcome(record: dict[str, Any], waited_ms: int, told: dict[str, Any]) -> None:
    say_wrapped(f"Version {told['version']}: {sentence_of(record)}.")
    if waited_ms > (duration_ms(record) or 0) + _WORTH_TELLING_MS:
        say_wrapped(f"From the request on it took {format_ms(waited_ms)}.")


def _why_taken_back(explained: Json, outcome: Outcome) -> str:
    """Why the rescale was taken back, in the server's words; empty if it was not."""
    if outcome.record is None or outcome.back is None:
        return ""
    rollback = explained["rollback"]
    is_of_it = rollback is not None and rollback["rescale"] == outcome.record["number"]
    return str(rollback["reason"] if is_of_it else outcome.back["message"])


def _refuse_end(job: str, bounds: list[str], outcome: Outcome, why: str) -> None:
    """The error of a rescale that did not succeed, or was taken back."""
    record, back, successor = outcome
    if back is not None and is_undoing(back):
        raise TakenBack(why, "The bounds before hold; the job runs as before.")
    if back is not None:
        raise TakenBack(
            f"The rescale was taken back: {why}",
            f"The job runs as before; the bounds stay declared. To try them again: slotwise require {job} "
            f"{' '.join(bounds)} --retry",
        )
    if record is not None and record["terminatedReason"] not in _DONE:
        told = [record["message"]] if record["message"] else []
        if successor is not None:
            # A new version of the job has the cause of declared bounds. Its message says what it is.
            message, cause = successor["message"], successor["triggerCause"]
            words = (
                None if message and cause == TriggerCause.UPDATE_REQUIREMENT else successor["causeInWords"]
            )
            why = ": ".join(filter(None, [words, message]))
            told.append(f"Record {successor['number']} took its place ({why})")
        why = ": ".join(filter(None, [record["terminatedReason"], " ".join(told)]))
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
    if not current:
        raise CliError(
            "The program has not started a query yet, so it has no vertices.",
            "Bounds that it was submitted with, by name, apply when they come.",
        )
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


def _missing(explained: Json) -> list[str]:
    """A sentence for each vertex that runs at less than its upper bound allows."""
    sentences = []
    for vertex in explained["vertices"].values():
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

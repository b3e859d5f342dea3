"""Events in words: the `summary` of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from app.model.sentences import duration_in_words

Json = Any
Names = Mapping[str, str]
"""Of the vertices of a job, by id. What is told of other vertices is left out: an id says nothing to a reader."""


def summary(kind: str, fields: Mapping[str, Json], names: Names) -> str:
    """An event in a line. Of one that only another version knows: its message, if it has one."""
    try:
        return _summary(kind, fields, names)
    except (KeyError, TypeError, AttributeError):
        return str(fields.get("message") or "")


def _summary(kind: str, fields: Mapping[str, Json], names: Names) -> str:
    match kind:
        case "status":
            change = f"{fields['previousStatus'] or 'new'} -> {fields['status']}"
            return _joined([change], fields.get("cause"))
        case "requirements" | "slot-share" | "scaling-policy" | "graph":
            return _grown(fields) if kind == "graph" else _declaration(kind, fields, names)
        case "failure":
            return _joined([fields["vertex"]], fields["error"])
        case "no-change":
            count = fields["count"]
            return f"{fields['message']} ({count} times)" if count > 1 else str(fields["message"])
        case "restart":
            what = fields["query"] or "the job"
            return f"{what} restarts, number {fields['number']}, in {duration_in_words(fields['backoffInMillis'])}"
        case "attempt-begun":
            return _joined(
                [f"attempt {fields['attempt']} begins", _parallelism(fields["parallelism"], names)]
            )
        case "attempt-ended":
            return f"attempt {fields['attempt']}: {fields['outcome']}"
        case "batches":
            count, backlog = fields["batches"], fields["pendingRecords"]
            told = ["1 batch" if count == 1 else f"{count} batches", f"{fields['records']} records"]
            told.append(f"the longest took {duration_in_words(fields['longestBatchInMillis'])}")
            return _joined([*told, None if backlog is None else f"backlog {backlog}"])
        case "job-forgotten":
            return f"job {fields['forgottenJob']} was deleted"
        case "member-joined" | "member-left":
            return f"server {fields['seat']} {kind.removeprefix('member-')}: {fields['url']}"
        case "rescale-begun" | "rescale-step" | "rescale-ended":
            return _rescale(kind, fields, names)
    return str(fields.get("message") or "")


def _rescale(kind: str, fields: Mapping[str, Json], names: Names) -> str:
    number = f"rescale {fields['number']}"
    reached = [fields.get("rung"), _parallelism(fields.get("postRescaleParallelism"), names)]
    if kind == "rescale-begun":
        return _joined(
            [f"{number} begins: {fields['triggerCause']}", *reached, _by(fields)], fields["reason"]
        )
    if kind == "rescale-step":
        return _joined([f"{number}: {fields['schedulerState']}", *reached])
    gap_ms = fields["outputGapInMillis"]
    gap = None if gap_ms is None else f"output gap {duration_in_words(gap_ms)}"
    ended = f"{number} {fields['terminalState']} after {duration_in_words(fields['durationInMillis'])}"
    return _joined([ended, *reached, gap], fields["message"])


def _grown(fields: Mapping[str, Json]) -> str:
    told = ((word, fields[word].values()) for word in ("added", "removed"))
    return "; ".join(f"{word} {', '.join(vertices)}" for word, vertices in told if vertices)


def _declaration(kind: str, fields: Mapping[str, Json], names: Names) -> str:
    if kind == "requirements":
        what = [_bounds(fields["bounds"], names), *_deadline(fields)]
    elif kind == "scaling-policy":
        what = [_limits(fields, names)]
    else:
        what = [
            f"weight {fields['weight']}",
            f"priority {fields['priority']}",
            f"cap {fields['cap'] or 'none'}",
        ]
    return _joined([f"version {fields['version']}", *what, _by(fields)], fields["reason"])


def _by(fields: Mapping[str, Json]) -> str | None:
    return f"by {fields['requestedBy']}" if fields["requestedBy"] else None


def _deadline(fields: Mapping[str, Json]) -> list[str]:
    on_timeout, at_ms = fields.get("onTimeout"), fields.get("deadlineTimestampInMillis")
    if not on_timeout:
        return []
    when = f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC" if at_ms else "a deadline"
    return [f"others wait, {on_timeout} at {when}"]


def _joined(parts: Iterable[str | None], remark: str | None = None) -> str:
    """'rescale 2: Executing, in-place: why'"""
    text = ", ".join(part for part in parts if part)
    return f"{text}: {remark}" if text and remark else text or remark or ""


def _parallelism(numbers: Mapping[str, int | None] | None, names: Names) -> str:
    """'counts 4, store 2'"""
    known = (numbers or {}).items()
    return ", ".join(f"{names[vertex]} {count}" for vertex, count in known if count and vertex in names)


def _bounds(bounds: Mapping[str, Json], names: Names) -> str:
    """'counts 1 to 4, store 2 to 2'"""
    return ", ".join(
        f"{names[vertex]} {one['lowerBound']} to {one['upperBound']}"
        for vertex, one in bounds.items()
        if vertex in names
    )


def _limits(fields: Mapping[str, Json], names: Names) -> str:
    """'floor 2, ceiling 8, counts floor 3'"""
    own = {names[vertex]: one for vertex, one in fields["vertices"].items() if vertex in names}
    told = [
        f"{name} {word} {one[word]}".strip()
        for name, one in {"": fields["allVertices"], **own}.items()
        for word in ("floor", "ceiling")
        if one[word] is not None
    ]
    return ", ".join(told) or "no floor and no ceiling"

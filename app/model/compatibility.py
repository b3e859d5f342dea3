"""Whether a new version of a job can continue from the checkpoints of the previous version, judged by their
graphs.

Spark checks the rest when the new version starts, such as the types of columns in the state.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.model.analysis import Query, queries
from app.model.jobgraph import JobGraph, JobType, JobVertex, PlannedSpec, SinkSpec, SourceSpec
from app.model.locations import plain_location
from app.model.sentences import shown
from app.model.statefulness import assumed_as

_PLACES = frozenset(
    {"path", "subscribe", "subscribepattern", "assign", "topic", "table", "dbtable", "host", "port"}
)
"""Options of a source that say what it reads, in lower case."""


def incompatibilities(before: JobGraph, after: JobGraph, *, redistributed: bool = False) -> list[str]:
    """Why ``after`` cannot go on from the checkpoints of ``before``, in sentences; empty if nothing is known.

    ``redistributed``: the state has other partitions than a document said, so those of ``after`` count for nothing.
    Of a program nothing is known before its queries are started.
    """
    if (why := kind_mismatch(before, after.type, is_program=after.program is not None)) is not None:
        return [why]
    if after.program is not None:
        return []
    errors: list[str] = []
    new = {query.key: query for query in queries(assumed_as(after, before))}
    for query in queries(before):
        other = new.get(query.key)
        if other is None:
            errors.append(
                f"The query of {shown(query.sink.name)} is not there any more, so nothing would go on from its "
                f"checkpoint: keep the name of its sink. The new version has {_listed([q.sink for q in new.values()])}."
            )
        else:
            errors += query_incompatibilities(query, other, redistributed=redistributed)
    return errors


def kind_mismatch(before: JobGraph, job_type: JobType, *, is_program: bool) -> str | None:
    """Why what is of ``job_type`` can be no version of the job of ``before``, in a sentence; None if it can be."""
    if job_type is not JobType.STREAMING:
        return f"type: a new version of a STREAMING job is STREAMING, found {job_type.value}."
    if (before.program is None) is is_program:
        was, is_now = ("a graph", "a program") if is_program else ("a program", "a graph")
        return f"The job is {was} and its new version {is_now}: their checkpoints are not the same."
    return None


def query_incompatibilities(before: Query, after: Query, *, redistributed: bool = False) -> list[str]:
    """The same of one query."""
    about = f"The query of {shown(before.sink.name)}"
    errors = []
    if _names(before.streams) != _names(after.streams):
        errors.append(
            f"{about} reads {_listed(after.streams)} now, and its checkpoint is of {_listed(before.streams)}: the "
            "sources of a checkpoint cannot be changed, nor their order."
        )
    else:
        for old, new in zip(before.streams, after.streams, strict=True):
            if (was := _place(old)) != (is_now := _place(new)):
                errors.append(
                    f"{about} reads {is_now} as {shown(old.name)} now, and its checkpoint is of {was}: the sources of "
                    "a checkpoint cannot be changed."
                )
    errors += _state(about, before, after, redistributed=redistributed)
    was_at, is_at = _checkpoint(before), _checkpoint(after)
    if was_at != is_at:
        errors.append(
            f"{about} has its checkpoint {is_at} now, and had it {was_at}: it would begin without its state. Leave "
            "checkpointLocation as it was."
        )
    old_path, new_path = (_folder(query.sink) for query in (before, after))
    if old_path is not None and new_path is not None and old_path != new_path:
        errors.append(
            f"{about} writes to {shown(new_path)} now, and to {shown(old_path)} before: Spark keeps a log of all "
            "batches in the folder of a file sink, and goes on with it only there."
        )
    return errors


def _state(about: str, before: Query, after: Query, *, redistributed: bool) -> list[str]:
    old, new = before.stateful, after.stateful
    if any(vertex.is_assumed for vertex in after.flow):
        # Which vertices keep state is compared by Spark. Those that did are known.
        kept = {vertex.id for vertex in old}
        new = tuple(vertex for vertex in new if vertex.id in kept)
    elif _kinds(old) != _kinds(new):
        return [
            f"{about} keeps state in {_listed(new)} now, and its checkpoint has the state of {_listed(old)}: operators "
            "with state cannot be added, removed or put into another order."
        ]
    if redistributed:
        return []
    was, is_now = before.state_partitions, max((vertex.max_parallelism for vertex in new), default=None)
    if was == is_now or is_now is None:
        return []
    setting = (
        "spark.sql.shuffle.partitions" if isinstance(old[0].operation, PlannedSpec) else "maxParallelism"
    )
    return [
        f"{about} has {is_now} state partitions now, and its state has {was}: leave {setting} as it was. State is "
        "redistributed by bounds, not by a new version."
    ]


def _kinds(vertices: Sequence[JobVertex]) -> list[tuple[str, str]]:
    return [
        (vertex.name, vertex.operation.operator if isinstance(vertex.operation, PlannedSpec) else "")
        for vertex in vertices
    ]


def _names(vertices: Sequence[JobVertex]) -> list[str]:
    return [vertex.name for vertex in vertices]


def _listed(vertices: Sequence[JobVertex]) -> str:
    return ", ".join(shown(vertex.name) for vertex in vertices) or "nothing"


def _place(source: JobVertex) -> str:
    operation = source.operation
    if isinstance(operation, PlannedSpec):
        return operation.operator
    assert isinstance(operation, SourceSpec)
    options = [f"{key} {shown(value)}" for key, value in sorted(operation.options) if key.lower() in _PLACES]
    path = [shown(_plain(operation.path))] if operation.path else []
    # Spark does not mind how a format is spelled.
    return " ".join([operation.format.lower(), *path, *options])


def _folder(sink: JobVertex) -> str | None:
    """Where a sink of files writes to, or any other that has a path."""
    path = getattr(sink.operation, "path", None)
    return None if path is None else _plain(str(path))


def _plain(location: str) -> str:
    """The same place is told in one way."""
    return plain_location(location) or location


def _checkpoint(query: Query) -> str:
    operation = query.sink.operation
    own = None if isinstance(operation, SinkSpec) else getattr(operation, "checkpoint", None)
    return "with the job" if own is None else f"in {shown(_plain(own))}"

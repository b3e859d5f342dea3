"""What each vertex did in a batch, from the stages that Spark reports and the counts at the operators of its plan.

How records are counted: `records`. How the run time of tasks is split among vertices: `times`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from app.driver.load import Stage
from app.driver.progress import SourceTold, StateTold
from app.driver.valves.operators import Operator, added
from app.driver.valves.query_valves import Rows
from app.driver.valves.records import Count, Records, records_of
from app.driver.valves.times import times_by_task
from app.model.analysis import Query
from app.model.measured import TASKS_TOLD, TaskWork, VertexBatch


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of a batch besides its stages. ``operators``: empty if they were not read. ``sources``: by vertex
    id. ``states``: in the order of the operators that keep state. ``changing``: see `records_of`."""

    operators: Sequence[Operator] = ()
    sources: Mapping[str, SourceTold] = field(default_factory=dict)
    states: Sequence[StateTold] = ()
    changing: Collection[str] = ()


def vertex_batches(
    query: Query,
    parallelism: Mapping[str, int],
    rows: Collection[Rows],
    stages: Sequence[Stage],
    *,
    input_rows: int | None,
    output_rows: int | None,
    told: Told = Told(),
) -> tuple[VertexBatch, ...]:
    """What each vertex of ``query`` did in a batch: in the ``stages`` whose tasks went through its valves, ``rows``,
    which are in the order of the plan, inputs first.

    A vertex that shuffles by itself is in two of them. Vertices without a shuffle in between share theirs. What is not
    known of a vertex is None.
    """
    members = {stage.stage_id: _members(stage, rows) for stage in stages}
    times = {
        stage.stage_id: times_by_task(stage, members[stage.stage_id], told.operators)
        for stage in stages
        if members[stage.stage_id]
    }
    work = {vertex.id: _work_of(vertex.id, rows, stages, members) for vertex in query.flow}
    records = _records(query, work, stages, told, input_rows, output_rows)
    states = _states(query, told)
    is_told = sum(each.tasks or 0 for each in work.values()) <= TASKS_TOLD
    found = []
    for vertex in query.flow:
        own = work[vertex.id]
        taken, given = records.taken_by(vertex.id), records.given_by(vertex.id)
        if behind := _behind(vertex.id, rows, own.stages) if vertex.is_source else []:
            # Its rows are spread within it: they come to the one and leave the other.
            own = own._replace(
                heads=[stage for stage in own.heads if stage not in behind],
                tails=[stage for stage in own.tails if stage in behind],
            )
        if vertex.is_source and any(_sources_in(query, members[each.stage_id]) > 1 for each in own.stages):
            # Nobody knows which of the sources has read or written the bytes of such a stage.
            own = own._replace(heads=[], tails=[])
        # Behind an exchange a task has what it reads there, wherever the plan has counted those rows.
        entered = Count(taken.rows) if own.heads and not vertex.is_source else taken
        busy_ms = [times[stage.stage_id][vertex.id] for stage in own.stages]
        longest = max(own.stages, key=lambda stage: stage.busy_ms, default=None)
        tasks_ms = [] if longest is None else sorted(longest.by_task.run_ms)
        state = states.get(vertex.id)
        found.append(
            VertexBatch(
                vertex_id=vertex.id,
                parallelism=parallelism[vertex.id],
                tasks=own.tasks,
                records_in=taken.rows,
                records_out=given.rows,
                busy_ms=sum(map(sum, busy_ms)) if busy_ms else None,
                bytes_in=_bytes(own.heads, taken.rows, "bytes_in"),
                bytes_out=_bytes(own.tails, taken.rows, "bytes_out"),
                longest_task_ms=tasks_ms[-1] if tasks_ms else None,
                median_task_ms=tasks_ms[(len(tasks_ms) - 1) // 2] if tasks_ms else None,
                state_rows=None if state is None else state.rows,
                state_bytes=None if state is None else state.size_bytes,
                by_task=_by_task(own, busy_ms, entered, given) if is_told else None,
                **_backlog(told.sources.get(vertex.id)),
            )
        )
    return tuple(found)


def _by_task(own: _Work, busy_ms: list[Sequence[int]], taken: Count, given: Count) -> TaskWork | None:
    """What each task of a vertex did; None if tasks were not noted. ``busy_ms``: for each of its stages."""
    if not own.tasks or not all(stage.by_task.run_ms for stage in own.stages):
        return None
    return TaskWork(
        _folded(busy_ms, own.tasks),
        _counted(taken, [stage.by_task.records_read for stage in own.heads], own.tasks),
        _counted(given, [stage.by_task.records_written for stage in own.tails], own.tasks),
        _folded([stage.by_task.bytes_read for stage in own.heads], own.tasks),
        _folded([stage.by_task.bytes_written for stage in own.tails], own.tasks),
    )


def _counted(count: Count, of_stages: list[Sequence[int]], tasks: int) -> tuple[int, ...]:
    """By the operators, else by the stages; empty if neither has counted rows of which there were some."""
    if count.rows == 0:
        return (0,) * tasks
    found = _folded([count.by_task] if any(count.by_task) else of_stages, tasks)
    return found if any(found) else ()


def _folded(columns: Sequence[Sequence[int]], tasks: int) -> tuple[int, ...]:
    """Their sums, of so many tasks; nothing for no columns. Where the stages of several vertices are united in one,
    each has a part of its tasks."""
    if not columns:
        return ()
    found = [0] * tasks
    for number, value in enumerate(added(columns)):
        found[number % tasks] += value
    return tuple(found)


def _backlog(source: SourceTold | None) -> dict[str, Any]:
    """The fields that tell what waits at a source, and how much of it the next batch gets."""
    if source is None:
        return {}
    return {
        "backlog_rows": source.waiting,
        "backlog_rows_by_topic": dict(source.topics),
        "lag_max_rows": source.lag_max,
        "backlog_files": source.files,
        "backlog_bytes": source.size_bytes,
        "intake_limit": source.limit.most,
        "intake_unit": source.limit.unit,
        "intake_why": source.limit.why,
    }


def _members(stage: Stage, rows: Collection[Rows]) -> list[str]:
    """The vertices with valves in a stage, inputs first."""
    return list(dict.fromkeys(valve.vertex_id for valve in rows if valve.rdd_id in stage.rdd_ids))


def _behind(source_id: str, rows: Collection[Rows], own: Sequence[Stage]) -> list[Stage]:
    """The stages of a source that begin with its rows spread."""
    fronts = {each.rdd_id for each in rows if each.vertex_id == source_id and each.is_front and each.shuffles}
    return [stage for stage in own if fronts & stage.rdd_ids]


def _sources_in(query: Query, members: Sequence[str]) -> int:
    return sum(source.id in members for source in query.streams)


def _bytes(stages: Sequence[Stage], records: int | None, name: str) -> int | None:
    """Rows into or out of these stages; None if some rows were not measured."""
    size = sum(getattr(stage, name) for stage in stages)
    return size if size or (stages and records == 0) else None


def _states(query: Query, told: Told) -> dict[str, StateTold]:
    """By vertex id. The valve next above an operator that keeps state is that of its vertex."""
    stateful = [vertex.id for vertex in query.stateful]
    keepers = [each for each in told.operators if each.keeps_state]
    owners = stateful * len(told.states) if len(stateful) == 1 else [each.vertex_id for each in keepers]
    if len(owners) != len(told.states) or not set(owners) <= set(stateful):
        return {}
    found: dict[str, StateTold] = {}
    for owner, state in zip(owners, told.states, strict=True):
        before = found.get(owner, StateTold(0, 0))
        found[owner] = StateTold(before.rows + state.rows, before.size_bytes + state.size_bytes)
    return found


def _records(
    query: Query,
    work: Mapping[str, _Work],
    stages: Sequence[Stage],
    told: Told,
    input_rows: int | None,
    output_rows: int | None,
) -> Records:
    """By the operators as far as they tell, else by the stages."""
    found = _records_of_stages(query, work, stages, input_rows, output_rows)
    if told.operators:
        read = {vertex_id: each.rows for vertex_id, each in told.sources.items()}
        found.correct(records_of(query, told.operators, told.changing, read))
    return found


def _records_of_stages(
    query: Query,
    work: Mapping[str, _Work],
    stages: Sequence[Stage],
    input_rows: int | None,
    output_rows: int | None,
) -> Records:
    found = Records()
    for vertex in query.flow:
        before = {edge.vertex_id: work[edge.vertex_id].stages for edge in query.streaming_inputs(vertex)}
        own = work[vertex.id].stages
        if not before or not own or any(own[0] in each for each in before.values()):
            continue
        found.taken[vertex.id] = Count(own[0].shuffle_read_records)
        for input_id, theirs in before.items():
            if len(before) == 1:
                found.given[input_id] = Count(own[0].shuffle_read_records)
            elif theirs and sum(theirs[-1] in each for each in before.values()) == 1:
                found.given[input_id] = Count(theirs[-1].shuffle_write_records or None)
    # Spark's sinks of files do not count, and their tasks do.
    written = output_rows if output_rows is not None else sum(each.written_records for each in stages) or None
    found.taken[query.sink.id] = Count(written)
    if len(query.streams) == 1:
        found.taken[query.streams[0].id] = found.given[query.streams[0].id] = Count(input_rows)
    return found


class _Work(NamedTuple):
    """The stages of a vertex, in the order of its valves; those of them that begin with it, and that end with it.
    ``tasks``: how many it has in the last of them."""

    stages: list[Stage]
    heads: list[Stage]
    tails: list[Stage]
    tasks: int | None


def _work_of(
    vertex_id: str,
    rows: Collection[Rows],
    stages: Sequence[Stage],
    members: Mapping[int, Sequence[str]],
) -> _Work:
    found: dict[int, Stage] = {}
    tasks = None
    for valve in rows:
        if valve.vertex_id != vertex_id:
            continue
        own = [stage for stage in stages if valve.rdd_id in stage.rdd_ids]
        found |= {stage.stage_id: stage for stage in own}
        if own:
            # Where the stages of several vertices are united in one, each has a part of the tasks. A program may work
            # on a batch several times, and look at a part of it only.
            tasks = max(min(stage.tasks, valve.partitions) for stage in own)
    listed = list(found.values())
    return _Work(
        listed,
        [stage for stage in listed if members[stage.stage_id][0] == vertex_id],
        [stage for stage in listed if members[stage.stage_id][-1] == vertex_id],
        tasks,
    )

"""The stages of a batch, as Spark reports them, and the vertices that they ran."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.driver.load import Stage
from app.driver.progress import SourceTold, StateTold
from app.driver.valves.operators import Operator
from app.driver.valves.query_valves import Rows
from app.driver.valves.records import Records, records_of
from app.driver.valves.work import parts_of, shares
from app.model.analysis import Query
from app.model.protocol import VertexBatch


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
    busy = {
        stage.stage_id: shares(
            stage.busy_ms, parts_of(members[stage.stage_id], stage.rdd_ids, told.operators)
        )
        for stage in stages
    }
    work = {vertex.id: _work_of(vertex.id, rows, stages) for vertex in query.flow}
    records = _records(query, work, stages, told, input_rows, output_rows)
    states = _states(query, told)
    found = []
    for vertex in query.flow:
        own, tasks = work[vertex.id]
        heads = [stage for stage in own if members[stage.stage_id][0] == vertex.id]
        tails = [stage for stage in own if members[stage.stage_id][-1] == vertex.id]
        is_alone = not vertex.is_source or all(
            _sources_in(query, members[each.stage_id]) == 1 for each in heads
        )
        longest = max(own, key=lambda stage: stage.busy_ms, default=None)
        state = states.get(vertex.id)
        found.append(
            VertexBatch(
                vertex_id=vertex.id,
                parallelism=parallelism[vertex.id],
                tasks=tasks,
                records_in=records.taken.get(vertex.id),
                records_out=records.given.get(vertex.id),
                busy_ms=sum(busy[stage.stage_id][vertex.id] for stage in own) if own else None,
                bytes_in=_bytes(heads if is_alone else [], records.taken.get(vertex.id), "bytes_in"),
                bytes_out=_bytes(tails, records.taken.get(vertex.id), "bytes_out"),
                longest_task_ms=None if longest is None else longest.longest_task_ms,
                median_task_ms=None if longest is None else longest.median_task_ms,
                state_rows=None if state is None else state.rows,
                state_bytes=None if state is None else state.size_bytes,
                **_backlog(told.sources.get(vertex.id)),
            )
        )
    return tuple(found)


def _backlog(source: SourceTold | None) -> dict[str, Any]:
    """The fields that tell what waits at a source."""
    if source is None:
        return {}
    return {
        "backlog_rows": source.waiting,
        "backlog_rows_by_topic": dict(source.topics),
        "lag_max_rows": source.lag_max,
        "backlog_files": source.files,
        "backlog_bytes": source.size_bytes,
    }


def _members(stage: Stage, rows: Collection[Rows]) -> list[str]:
    """The vertices with valves in a stage, inputs first."""
    return list(dict.fromkeys(valve.vertex_id for valve in rows if valve.rdd_id in stage.rdd_ids))


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
    work: Mapping[str, tuple[list[Stage], int | None]],
    stages: Sequence[Stage],
    told: Told,
    input_rows: int | None,
    output_rows: int | None,
) -> Records:
    """By the operators as far as they tell, else by the stages."""
    found = _records_of_stages(query, work, stages, input_rows, output_rows)
    if told.operators:
        exact = records_of(
            query, told.operators, told.changing, {k: each.rows for k, each in told.sources.items()}
        )
        for known, better in ((found.taken, exact.taken), (found.given, exact.given)):
            known.update({vertex_id: number for vertex_id, number in better.items() if number is not None})
    return found


def _records_of_stages(
    query: Query,
    work: Mapping[str, tuple[list[Stage], int | None]],
    stages: Sequence[Stage],
    input_rows: int | None,
    output_rows: int | None,
) -> Records:
    found = Records()
    for vertex in query.flow:
        before = {edge.vertex_id: work[edge.vertex_id][0] for edge in query.streaming_inputs(vertex)}
        own = work[vertex.id][0]
        if not before or not own or any(own[0] in each for each in before.values()):
            continue
        found.taken[vertex.id] = own[0].shuffle_read_records
        for input_id, theirs in before.items():
            if len(before) == 1:
                found.given[input_id] = own[0].shuffle_read_records
            elif theirs and sum(theirs[-1] in each for each in before.values()) == 1:
                found.given[input_id] = theirs[-1].shuffle_write_records or None
    # Spark's sinks of files do not count, and their tasks do.
    found.taken[query.sink.id] = (
        output_rows if output_rows is not None else sum(each.written_records for each in stages) or None
    )
    if len(query.streams) == 1:
        found.taken[query.streams[0].id] = found.given[query.streams[0].id] = input_rows
    return found


def _work_of(
    vertex_id: str, rows: Collection[Rows], stages: Sequence[Stage]
) -> tuple[list[Stage], int | None]:
    """The stages of a vertex, in the order of its valves, and how many tasks it has in the last of them."""
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
    return list(found.values()), tasks

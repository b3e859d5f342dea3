"""What each vertex did in a batch, from the stages that Spark reports, and its counts at the operators of its plan.

Records. Of a graph document they are those of the graph: a vertex that gives a record for each that it takes gives as
many as it takes, wherever Spark has put its filter. Spark moves filters down, and makes one of two: they are counted at
the first vertex below that changes the number of records, else where the graph has them. The vertices of a program are
its sources, what keeps state, and its sinks. All that it does in between belongs to the vertex before, which gives what
is left.

Run time. Spark measures a stage, and a few operators: what runs in Python, and what keeps state. Their time is that of
their vertices. The rest is split by how many operators of a vertex had how many rows: that is an estimate.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from app.driver.load import Stage
from app.driver.progress import SourceTold, StateTold
from app.driver.valves.operators import Operator, below, total
from app.driver.valves.query_valves import Rows
from app.model.analysis import Query
from app.model.jobgraph import PlannedSpec
from app.model.protocol import VertexBatch

_STATE: Final = ("State", "Streaming", "HashAggregate", "ObjectHashAggregate", "SortAggregate", "Sessions")


@dataclass(slots=True)
class Records:
    """By vertex id."""

    taken: dict[str, int | None] = field(default_factory=dict)
    given: dict[str, int | None] = field(default_factory=dict)


def _records_of(
    query: Query, operators: Sequence[Operator], changing: Collection[str], read: Mapping[str, int]
) -> Records:
    """``changing``: the vertices of a document that may give more or fewer records than they take. ``read``: what
    sources have read, as far as it is known."""
    valves: dict[str, list[Operator]] = {}
    for operator in operators:
        if (valve := operator.valve) is not None:
            valves.setdefault(valve.vertex_id, []).append(operator)
    found = Records()
    for source in query.streams:
        own = [each for each in valves.get(source.id, ()) if each.valve and not each.valve.is_front]
        leaves = [each for valve in own for each in below(valve) if not each.children]
        found.taken[source.id] = read.get(source.id, total(each.rows for each in leaves))
    if isinstance(query.sink.operation, PlannedSpec):
        _of_program(query, valves, found)
    else:
        _of_document(query, valves, changing, found)
    return found


def _of_document(
    query: Query, valves: Mapping[str, Sequence[Operator]], changing: Collection[str], found: Records
) -> None:
    for vertex in query.flow:
        if not vertex.is_source:
            found.taken[vertex.id] = _given_to(query, vertex.id, found)
        if vertex.is_sink:
            break
        taken = found.taken[vertex.id]
        if vertex.id not in changing or (taken == 0 and not vertex.stateful):
            found.given[vertex.id] = taken
            continue
        own = [each for each in valves.get(vertex.id, ()) if each.valve and not each.valve.is_front]
        found.given[vertex.id] = total(each.rows for each in own)


def _given_to(query: Query, vertex_id: str, found: Records) -> int | None:
    (vertex,) = (each for each in query.flow if each.id == vertex_id)
    return total(found.given.get(edge.vertex_id) for edge in query.streaming_inputs(vertex))


def _of_program(query: Query, valves: Mapping[str, Sequence[Operator]], found: Records) -> None:
    for vertex in query.flow[:-1]:
        own = valves.get(vertex.id, ())
        if not vertex.is_source:
            entries = [each for valve in own for each in _entries(valve)]
            found.taken[vertex.id] = total(each.rows for each in entries)
        ends = dict.fromkeys(map(_end, own))
        found.given[vertex.id] = total(each.rows for each in ends)
    sink = query.sink.id
    at_sink = [each.children[0] for each in valves.get(sink, ())]
    taken = total(each.rows for each in at_sink)
    found.taken[sink] = taken if taken is not None else _given_to(query, sink, found)


def _entries(valve: Operator) -> list[Operator]:
    """What the operators that keep the state of ``valve``'s vertex get their rows from."""
    found: list[Operator] = []
    waiting: list[tuple[Operator, Operator | None]] = [(child, None) for child in valve.children]
    while waiting:
        node, entry = waiting.pop()
        if not node.children or node.valve is not None:
            # The part of the plan that is the vertex' own ends here.
            if entry is not None and entry not in found:
                found.append(entry)
            continue
        waiting += [(child, child if _is_of_state(node) else entry) for child in node.children]
    return found


def _end(valve: Operator) -> Operator:
    """The last operator whose rows all are those of ``valve``'s vertex."""
    last = valve
    assert valve.valve is not None
    own_id = valve.valve.vertex_id
    for node in valve.above:
        # A source has two, one over the other.
        is_others = node.valve is not None and node.valve.vertex_id != own_id
        if is_others or _is_of_state(node) or node.kind == "Union":
            break
        last = node
    return last


def _is_of_state(node: Operator) -> bool:
    return node.keeps_state or any(part in node.kind for part in _STATE)


@dataclass(frozen=True, slots=True)
class Part:
    """What is known of the work of a vertex in a stage. ``passes``: rows, once for each operator that had them."""

    timed_ms: int = 0
    passes: int = 0


def shares_of_time(busy_ms: int, parts: Mapping[str, Part]) -> dict[str, int]:
    """``busy_ms`` split among vertices; the sum is ``busy_ms``."""
    timed = sum(part.timed_ms for part in parts.values())
    rest = max(0, busy_ms - timed)
    # A metric of an operator that waits for others may be longer than the stage.
    scale = min(1.0, busy_ms / timed) if timed else 0.0
    passes = sum(part.passes for part in parts.values())
    found: dict[str, int] = {}
    before = exact = 0.0
    for vertex_id, part in parts.items():
        fraction = part.passes / passes if passes else 1 / len(parts)
        exact += part.timed_ms * scale + rest * fraction
        found[vertex_id] = round(exact) - round(before)
        before = exact
    return found


def _parts_of(
    members: Sequence[str], rdd_ids: frozenset[int], operators: Sequence[Operator]
) -> dict[str, Part]:
    """The work of each vertex in the stage whose tasks went through ``rdd_ids``, in which ``members`` have valves."""
    found = dict.fromkeys(members, Part())
    for top in operators:
        if top.parent is not None and not top.parent.begins_stage:
            continue
        inside = list(_in_stage(top))
        if not any(each.valve is not None and each.valve.rdd_id in rdd_ids for each in inside):
            continue
        for operator in inside:
            vertex_id = _owner(operator)
            if vertex_id in found:
                part = found[vertex_id]
                passes = part.passes + (operator.rows or 0 if operator.works else 0)
                found[vertex_id] = Part(part.timed_ms + operator.timed_ms, passes)
    if members and operators:
        # What a sink does is not in the plan.
        found = _with_sink(found, operators)
    return found


def _with_sink(parts: dict[str, Part], operators: Sequence[Operator]) -> dict[str, Part]:
    valve = next((each for each in operators if each.valve is not None), None)
    if valve is None or valve.valve is None or (sink := valve.valve.vertex_id) not in parts:
        return parts
    part = parts[sink]
    return {**parts, sink: Part(part.timed_ms, part.passes + (valve.rows or 0))}


def _in_stage(top: Operator) -> Iterator[Operator]:
    """``top`` and what runs in its stage. An exchange at the end of it is read there."""
    yield top
    if not top.begins_stage:
        for child in top.children:
            yield from _in_stage(child)


def _owner(operator: Operator) -> str:
    """The vertex whose valve is the next one above in the stage, or below if that valve belongs to what follows."""
    node: Operator | None = operator
    while node is not None:
        if node.valve is not None and not (node.valve.is_front and node is not operator):
            return node.valve.vertex_id
        if node.valve is not None or node.parent is None or node.parent.begins_stage:
            break
        node = node.parent
    return next((each.valve.vertex_id for each in below(operator) if each.valve is not None), "")


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of a batch besides its stages. ``operators``: empty if they were not read. ``sources``: by vertex
    id. ``states``: in the order of the operators that keep state. ``changing``: see `_records_of`."""

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
        stage.stage_id: shares_of_time(
            stage.busy_ms, _parts_of(members[stage.stage_id], stage.rdd_ids, told.operators)
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
        if behind := _behind(vertex.id, rows, own) if vertex.is_source else []:
            # Its rows are spread within it: they come to the one and leave the other.
            heads = [stage for stage in heads if stage not in behind]
            tails = [stage for stage in tails if stage in behind]
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
    work: Mapping[str, tuple[list[Stage], int | None]],
    stages: Sequence[Stage],
    told: Told,
    input_rows: int | None,
    output_rows: int | None,
) -> Records:
    """By the operators as far as they tell, else by the stages."""
    found = _records_of_stages(query, work, stages, input_rows, output_rows)
    if told.operators:
        exact = _records_of(
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

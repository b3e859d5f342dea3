"""Other numbers of state partitions are durable: in the state of a job and in its requirements."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from app.model.job_state.partitions import Repartition, RepartitionRefused
from app.model.state_partitions import numbers_of, with_partitions
from app.store import codec
from app.store.codec import REQUIREMENTS
from app.store.tables import requirements
from tests.parts import with_part
from tests.unit.scheduler.test_state_repartition import AGG, begun, partitions, running


def test_a_state_is_loaded_with_the_partitions_that_it_had() -> None:
    job = begun(running())
    submitted = job.graph
    loaded = codec.load_state(codec.dump_state(job.state), submitted, job.state.options)
    assert loaded == job.state
    assert dict(numbers_of(loaded.graph))[AGG] == partitions(job) == 12
    assert isinstance(loaded.partitions.repartition, Repartition)


def test_what_was_given_up_is_remembered() -> None:
    state = with_part(running().state, "partitions", refused=RepartitionRefused("r", "no space"))
    assert codec.load_state(codec.dump_state(state), state.graph, state.options) == state


def test_a_state_of_before_has_the_graph_as_submitted() -> None:
    state = running().state
    assert codec.load_state(codec.dump_state(state), state.graph, state.options).graph is state.graph


def test_initial_bounds_stay_within_fewer_partitions() -> None:
    graph = running().graph
    fewer = with_partitions(with_partitions(graph, ((AGG, 8),)), ((AGG, 1),))
    vertex = fewer.by_id[AGG]
    assert (vertex.max_parallelism, vertex.parallelism, vertex.lower_bound) == (1, 1, 1)


def test_numbers_of_requirements() -> None:
    declared = running().state.requirements
    for numbers in ((), ((AGG, 6),)):
        values = REQUIREMENTS.row("job", replace(declared, state_partitions=numbers), 1)
        row = dict(zip(requirements.columns.keys(), values, strict=True))
        assert (row["state_partitions"] is None) == (numbers == ())
        assert REQUIREMENTS.value(SimpleNamespace(**row)).state_partitions == numbers  # type: ignore[arg-type]

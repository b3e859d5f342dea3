"""What sizes of files decide before anything was read."""

from __future__ import annotations

import pytest

from app.scheduler.batch.source_sizes import bytes_before, source_limit, subpartitions_for
from tests.unit.batch.driving import BatchJob, chain

MB = 1 << 20


@pytest.mark.parametrize(
    ("size_bytes", "held_slots", "limit"),
    [
        (None, 4, None),
        (0, 0, 1),
        (100 * MB, 4, 4),
        (128 * MB, 1, 1),
        (128 * MB + 1, 1, 2),
        (1280 * MB, 4, 10),
    ],
)
def test_the_most_tasks_of_a_source(size_bytes: int | None, held_slots: int, limit: int | None) -> None:
    assert source_limit(size_bytes, held_slots) == limit


@pytest.mark.parametrize(
    ("known_bytes", "lower", "upper", "parts"),
    [
        (None, 1, 16, 16),
        (None, 1, 17, 16),
        (None, 9, 12, 12),
        (0, 1, 16, 1),
        # Eight times as much may come out of them.
        (2 * MB, 1, 16, 1),
        (2 * MB + 1, 1, 16, 2),
        (9 * MB, 1, 16, 8),
        (9 * MB, 1, 6, 4),
        (900 * MB, 1, 16, 16),
        (0, 5, 16, 5),
    ],
)
def test_parts_of_a_result(known_bytes: int | None, lower: int, upper: int, parts: int) -> None:
    assert subpartitions_for(lower, upper, known_bytes=known_bytes, volume_bytes=16 * MB) == parts


def test_all_sources_before_a_vertex_count() -> None:
    graph = chain()
    ids = {vertex.name: vertex.id for vertex in graph.vertices}
    sizes = {ids["customers"]: 3, ids["orders"]: 100}
    assert bytes_before(graph, ids["orders"], sizes) == 100
    assert bytes_before(graph, ids["joined"], sizes) == 103
    del sizes[ids["customers"]]
    assert bytes_before(graph, ids["joined"], sizes) is None
    assert bytes_before(graph, ids["orders"], sizes) == 100


def test_both_inputs_of_a_join_have_as_many_parts() -> None:
    """However small one of them is: a task finds the rows of a key in the same part of each."""
    job = BatchJob(chain()).run(customers=1, orders=3 * MB)
    assert [output.subpartitions for order in job.orders.values() for output in order.outputs] == [2, 2]

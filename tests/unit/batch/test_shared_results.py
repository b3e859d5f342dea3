"""Results that several vertices read: one for each way in which rows are to lie, with parts enough for every reader."""

from __future__ import annotations

from app.documents.graph import parse_document
from app.model.batch_layout import layout_of
from app.model.graphdoc import to_document
from app.model.jobgraph import JobGraph
from app.scheduler.batch.scheduling import out_of_reach
from tests.unit.batch.driving import MB, BatchJob, chain


def shared(*readers: tuple[str, str, int]) -> JobGraph:
    """A source, read by its keys by each of ``readers``: name, key, upper bound."""
    vertices: list[dict[str, object]] = [{"name": "orders", "source": {"format": "parquet", "path": "/o"}}]
    for name, key, upper in readers:
        edge = {"vertex": "orders", "partitioner": "HASH", "exchange": "BLOCKING", "keys": [key]}
        sql = f"SELECT {key}, count(*) AS n FROM orders GROUP BY {key}"
        vertices.append({"name": name, "inputs": [edge], "sql": sql, "parallelism": upper})
        vertices.append({"name": f"store-{name}", "inputs": [name], "sink": {"format": "noop"}})
    return parse_document({"name": "shared", "type": "BATCH", "vertices": vertices})


def test_a_producer_leaves_a_result_for_each_of_the_keys_that_its_readers_ask_for() -> None:
    graph = shared(("by-day", "day", 8), ("by-shop", "shop", 8), ("by-day-too", "day", 8))
    found = [
        (one.keys, [graph.by_id[reader].name for reader in one.readers]) for one in layout_of(graph).datasets
    ]
    assert found == [(("day",), ["by-day", "by-day-too"]), (("shop",), ["by-shop"])]
    job = BatchJob(graph).run()
    by_day, by_shop = (one.dataset for one in job.orders["orders"].outputs)
    job.finish("orders")
    read = {name.partition("+")[0]: order.reads[0].result.dataset for name, order in job.orders.items()}
    assert read == {"by-day": by_day, "by-day-too": by_day, "by-shop": by_shop}


def test_a_result_has_as_many_parts_as_the_reader_that_needs_most() -> None:
    for uppers in ((4, 16), (16, 4)):
        job = BatchJob(shared(*((f"by-{upper}", "day", upper) for upper in uppers))).run()
        (output,) = job.orders["orders"].outputs
        assert output.subpartitions == 16
        job.finish("orders", *(64 * MB,) * 16)
        assert (job.decision("by-4").parallelism, job.decision("by-16").parallelism) == (4, 16)


def test_a_result_is_kept_until_the_last_of_its_readers_is_done() -> None:
    for first, last in (("by-4", "by-16"), ("by-16", "by-4")):
        job = BatchJob(shared(("by-4", "day", 4), ("by-16", "day", 16))).run().finish("orders")
        job.finish(f"{first}+store-{first}").fail(f"{last}+store-{last}").wait()
        assert list(job.orders) == [f"{last}+store-{last}"], "what it reads is there still"
        job.finish(f"{last}+store-{last}")
        assert job.state.batch is not None and job.state.batch.results == ()


def test_bounds_are_out_of_reach_of_a_vertex_whose_narrowest_input_has_fewer_parts() -> None:
    """orders has 16 parts for a reader of its own, customers has 4."""
    graph = chain(joined=(1, 4))
    document = to_document(graph)
    edge = {"vertex": "orders", "partitioner": "HASH", "exchange": "BLOCKING", "keys": ["k"]}
    document["vertices"] += [
        {"name": "wide", "inputs": [edge], "sql": "SELECT k FROM orders", "parallelism": 16},
        {"name": "store-wide", "inputs": ["wide"], "sink": {"format": "noop"}},
    ]
    job = BatchJob(parse_document(document)).run()
    parts = {name: order.outputs[0].subpartitions for name, order in job.orders.items()}
    assert parts == {"customers": 4, "orders": 16}
    before = job.state.requirements
    job.put(joined=(1, 16))
    found = [(vertex.name, most) for vertex, most in out_of_reach(job.state, before)]
    assert found == [("joined", 4)]

"""The batch half of Executing: which regions run, and at which parallelism."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from app.documents.graph import parse_document
from app.model.batch import LimitedBy
from app.model.options import JobOptions
from app.model.protocol import Orders
from app.model.rescale import TerminalState, TriggerCause
from app.model.scaling_policy import FloorCeiling, ScalingPolicy
from app.model.status import JobStatus
from app.scheduler.adaptive.draft import InvalidTransition, status_of
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptFinished,
    AttemptStopped,
    CancelRequested,
    RegionFinished,
    ScalingPolicyUpdated,
    StopRequested,
)
from app.scheduler.explain import explain
from app.scheduler.step import step
from app.store import codec
from app.worker.job.orders import orders_for
from tests.invariants import InvariantViolation, validate
from tests.unit.batch.driving import MB, BatchJob, chain, running

LIMITS = {"joined": FloorCeiling(None, 2), "total": FloorCeiling(3)}


def test_one_slot_is_enough_for_the_blogs_example() -> None:
    """FLIP's blog: customers and orders, joined. Two regions run side by side, in one slot."""
    job = BatchJob(chain(), held=1)
    assert job.kind == "CreatingExecutionGraph", "there is no wait for more slots than are needed"
    job.run()
    assert list(job.orders) == ["customers", "orders"]
    job.finish("customers")
    assert list(job.orders) == ["orders"]
    job.finish("orders")
    assert list(job.orders) == ["joined"]
    job.finish("joined")
    assert list(job.orders) == ["total+store"]
    job.finish("total+store")
    assert job.orders == {} and orders_for(job.state, 1).stop == "drain"
    job.do(AttemptFinished(1))
    assert status_of(job.state) is JobStatus.FINISHED


def test_a_source_gets_a_task_for_each_16_mb_of_its_files_but_none_that_would_wait_for_a_slot() -> None:
    job = running()
    sources = [list(order.parallelism.values()) for order in job.orders.values()]
    assert sources == [[1], [4]], "7 tasks would do what 4 do in its 4 slots"
    # Where the sizes are not known the upper bound holds.
    assert [list(one.parallelism.values()) for one in BatchJob(chain()).run().orders.values()] == [[16], [16]]


def test_a_decision_keeps_the_clients_bounds_and_what_else_limited_it_apart() -> None:
    job = BatchJob(chain(orders=(1, 8)), held=1).run(customers=3 * MB, orders=100 * MB)
    customers, orders = job.decision("customers"), job.decision("orders")
    assert (customers.lower, customers.upper, customers.limit, customers.limited_by) == (1, 16, None, None)
    assert (orders.rule, orders.parallelism, orders.wanted) == ("source", 1, 7)
    assert (orders.lower, orders.upper, orders.limit, orders.limited_by) == (1, 8, 1, LimitedBy.SLOTS)
    assert (
        "orders runs at 1 by source: 104857600 bytes of input, 16777216 for each task, ask for 7 (bounds 1 to 8). "
        "More than 1 task(s) would only wait for slots." in explain(job.state, job.now_ms)[0]
    )


def test_a_source_whose_files_are_not_measured_runs_at_its_upper_bound_and_says_so() -> None:
    job = BatchJob(chain(customers=(3, 3))).run()
    assert (job.decision("orders").rule, job.decision("customers").rule) == ("source", "fixed")
    sentences, _ = explain(job.state, job.now_ms)
    assert "orders runs at 16: the size of its files is not known (bounds 1 to 16)." in sentences
    assert "customers runs at 3: its bounds leave no choice (bounds 3 to 3)." in sentences


@pytest.mark.parametrize(
    ("name", "value", "limit", "sentence"),
    [
        ("max-parallelism", "4", 4, " (bounds 1 to 16). The options of the job allow 4 at most."),
        ("min-parallelism", "12", 12, " (bounds 1 to 16). The options of the job ask for at least 12."),
        ("enabled", "false", 16, " (bounds 1 to 16). The options of the job ask for at least 16."),
    ],
)
def test_options_that_limit_a_decision_are_named(name: str, value: str, limit: int, sentence: str) -> None:
    graph = chain()
    option = (f"execution.batch.adaptive.auto-parallelism.{name}", value)
    job = BatchJob(replace(graph, config=(*graph.config, option))).run()
    parts = job.orders["orders"].outputs[0].subpartitions
    job.finish("customers", *(64 * MB // parts,) * parts).finish("orders", *(64 * MB // parts,) * parts)
    decision = job.decision("joined")
    assert (decision.rule, decision.lower, decision.upper) == ("flip-187", 1, 16)
    assert (decision.limit, decision.limited_by) == (limit, LimitedBy.OPTIONS)
    (found,) = [one for one in explain(job.state, job.now_ms)[0] if one.startswith("joined")]
    assert found.endswith(sentence)


def test_a_decision_of_an_older_version_is_read_with_defaults() -> None:
    job = running().finish("customers").finish("orders")
    stored = json.loads(codec.dump_state(job.state))
    for decision in stored["batch"]["decisions"]:
        for name in ("limit", "limited_by", "normalized", "counted_broadcast_bytes"):
            del decision[name]
    before = job.decision("joined")
    job.state = codec.load_state(json.dumps(stored), job.graph, job.state.options)
    assert job.decision("joined") == replace(before, normalized=None)


def test_the_parallelism_follows_from_the_bytes_that_were_produced() -> None:
    job = running().finish("customers").finish("orders", *(8 * MB,) * 16)
    # 16 + 128 MB at 16 MB for each task: 9, and the nearest power of two is 8.
    order = job.orders["joined"]
    assert list(order.parallelism.values()) == [8]
    assert {read.groups for read in order.reads} == {tuple((task, task + 8) for task in range(8))}
    decision = job.state.batch.decision(next(iter(order.parallelism)))  # type: ignore[union-attr]
    assert decision is not None
    assert (decision.rule, decision.wanted, decision.bytes, decision.subpartitions) == (
        "flip-187",
        9,
        144 * MB,
        16,
    )
    sentences, violations = explain(job.state, job.now_ms)
    assert not violations
    assert any("joined runs at 8 by flip-187: 150994944 bytes" in sentence for sentence in sentences)


def test_even_data_gives_each_task_about_as_many_bytes() -> None:
    job = running(rule="even-data").finish("customers", *(0,) * 16)
    job.finish("orders", 30 * MB, *(1 * MB,) * 15)
    (read, _) = job.orders["joined"].reads
    assert read.groups == ((0,), tuple(range(1, 16)))


def test_an_empty_input_runs_at_the_lower_bound() -> None:
    for rule in ("flip-187", "even-data"):
        job = running(rule=rule, joined=(2, 16)).finish("customers", *(0,) * 16).finish("orders", *(0,) * 16)
        assert list(job.orders["joined"].parallelism.values()) == [2]


def test_a_vertex_with_one_choice_keeps_it() -> None:
    job = running(joined=(6, 6))
    assert [one.subpartitions for order in job.orders.values() for one in order.outputs] == [6, 6]
    job.finish("customers").finish("orders")
    assert list(job.orders["joined"].parallelism.values()) == [6]
    assert job.decision("joined").rule == "fixed"


def test_a_put_counts_for_what_is_not_decided_yet() -> None:
    job = running().put(joined=(1, 2), customers=(1, 3))
    assert list(job.orders["customers"].parallelism.values()) == [1], "it runs already"
    record = job.closed[-1]
    assert record.message == (
        "The bounds count for what is not decided yet: joined, total, store. Decided already, and not changed by them: "
        "customers."
    )
    assert record.terminal_state is TerminalState.COMPLETED
    job.finish("customers").finish("orders", *(100 * MB,) * 16)
    assert list(job.orders["joined"].parallelism.values()) == [2]


def test_a_ceiling_and_a_floor_are_limits_of_the_decider_and_stay_when_bounds_are_declared() -> None:
    job = running()
    limits = tuple((job.graph.by_name[name].id, own) for name, own in LIMITS.items())
    job.do(ScalingPolicyUpdated(ScalingPolicy(2, vertices=limits, requested_by="olga")))
    record = job.closed[-1]
    assert (record.cause, record.terminal_state) == (TriggerCause.UPDATE_POLICY, TerminalState.COMPLETED)
    assert (record.message or "").startswith(
        "The bounds count for what is not decided yet: joined, total, store."
    )
    job.put(joined=(1, 16), total=(1, 1), store=(1, 1))
    job.finish("customers").finish("orders", *(100 * MB,) * 16)
    assert list(job.orders["joined"].parallelism.values()) == [2], "the bytes ask for 16"
    job.finish("joined")
    assert (job.decision("total").lower, job.decision("total").upper) == (3, 3)


def test_a_put_that_counts_for_nothing_any_more_is_ignored_and_what_it_leaves_outside_is_a_violation() -> (
    None
):
    job = running().put(orders=(1, 2), customers=(3, 8))
    record = job.closed[-1]
    assert record.terminal_state is TerminalState.IGNORED
    why = "that was decided before the bound was declared, and stays unless its region has to run again."
    assert set(explain(job.state, job.now_ms)[1]) == {
        f"customers runs at 1, below its lower bound 3: {why}",
        f"orders runs at 4, above its upper bound 2: {why}",
    }
    job.finish("customers").finish("orders")
    assert explain(job.state, job.now_ms)[1] == (), "nothing runs outside of its bounds any more"


def test_records_have_the_parallelism_of_decided_vertices_and_no_other() -> None:
    job = BatchJob(chain())
    sentences, _ = explain(job.state, job.now_ms)
    assert "The driver of attempt 1 is being started with 4 slot(s)." in sentences
    nothing = {name: (None, None) for name in ("customers", "orders", "joined", "total", "store")}
    assert job.before_and_after() == nothing
    job.run(customers=3 * MB, orders=100 * MB)
    assert job.before_and_after() == nothing
    job.finish("customers").put(total=(1, 3))
    assert job.before_and_after() == {**nothing, "customers": (1, None), "orders": (4, None)}
    job.do(AttemptFailed(1, "The driver was killed.", stopped=True))
    assert job.before_and_after() == {**nothing, "customers": (1, None), "orders": (4, None)}
    while job.state.attempt == 1:
        job.wait()
    assert job.before_and_after() == {**nothing, "customers": (1, 1), "orders": (4, None)}, (
        "to be decided again"
    )


def test_a_bound_that_cannot_be_reached_any_more_is_named_at_once_and_when_it_is_decided() -> None:
    """No task reads less than a part of its inputs, and how many parts there are is fixed by then."""
    job = running(joined=(1, 4)).put(joined=(8, 16), total=(1, 8))
    record = job.closed[-1]
    assert record.message == (
        "The bounds count for what is not decided yet: joined, total, store. What some of them read is in fewer parts "
        "already, so they run with fewer tasks: joined with 4 at most."
    )
    assert explain(job.state, job.now_ms)[1] == ()
    job.finish("customers").finish("orders", *(100 * MB,) * 4)
    decision = job.decision("joined")
    assert (decision.parallelism, decision.lower, decision.upper) == (4, 8, 16)
    assert (decision.limit, decision.limited_by) == (4, LimitedBy.SUBPARTITIONS)
    sentences, violations = explain(job.state, job.now_ms)
    assert any(
        "joined runs at 4 by flip-187" in one
        and one.endswith(
            "(bounds 8 to 16). Its inputs are written in 4 part(s), so more tasks would have nothing to read."
        )
        for one in sentences
    )
    assert violations == (
        "joined runs at 4, below its lower bound 8: its inputs were written in 4 parts before the bound was raised.",
    )
    job.finish("joined")
    assert explain(job.state, job.now_ms)[1][0].startswith("joined ran at 4, below its lower bound 8: ")


def test_a_put_names_only_bounds_that_it_put_out_of_reach() -> None:
    job = running(joined=(1, 4))
    for bounds, is_named in (((2, 4), False), ((2, 6), True), ((2, 5), False), ((5, 6), True)):
        job.put(joined=bounds)
        message = job.closed[-1].message or ""
        assert message.endswith("joined with 4 at most.") is is_named, message
    # Where nothing is written yet, what is to be written follows the bounds.
    job.put(total=(9, 16))
    assert "parts already" not in (job.closed[-1].message or "")
    job.finish("customers").finish("orders").finish("joined")
    assert job.decision("total").parallelism >= 9 and len(explain(job.state, job.now_ms)[1]) == 1


@pytest.mark.parametrize("bounds", [(5, 16), (1, 3)])
def test_a_decision_outside_its_bounds_that_nothing_explains_breaks_an_invariant(
    bounds: tuple[int, int],
) -> None:
    job = running().finish("customers").finish("orders", *(4 * MB,) * 16)
    batch = job.state.batch
    assert batch is not None and job.decision("joined").parallelism == 4
    made = replace(job.decision("joined"), lower=bounds[0], upper=bounds[1])
    broken = replace(job.state, batch=replace(batch, decisions=(*batch.decisions[:-1], made)))
    with pytest.raises(InvariantViolation, match="joined was decided to run at 4 within"):
        validate(broken)


@pytest.mark.parametrize(
    ("name", "value", "sources", "joined"),
    [
        ("enabled", "false", [[16], [16]], 16),
        ("min-parallelism", "4", [[4], [4]], 8),
        # Not beyond the bounds of the vertex.
        ("min-parallelism", "64", [[16], [16]], 16),
        ("max-parallelism", "4", [[1], [4]], 4),
        ("default-source-parallelism", "3", [[1], [3]], 8),
    ],
)
def test_the_options_of_flip_187_limit_every_decision(
    name: str, value: str, sources: list[list[int]], joined: int
) -> None:
    graph = chain()
    option = (f"execution.batch.adaptive.auto-parallelism.{name}", value)
    job = BatchJob(replace(graph, config=(*graph.config, option))).run(customers=3 * MB, orders=100 * MB)
    assert [list(order.parallelism.values()) for order in job.orders.values()] == sources
    parts = job.orders["orders"].outputs[0].subpartitions
    job.finish("customers", *(1,) * parts).finish("orders", *(128 * MB // parts,) * parts)
    assert list(job.orders["joined"].parallelism.values()) == [joined]


def test_the_least_may_not_be_more_than_the_most() -> None:
    prefix = "execution.batch.adaptive.auto-parallelism."
    _, errors = JobOptions.parse({prefix + "min-parallelism": 9, prefix + "max-parallelism": 8})
    assert errors == [
        f"Option {prefix}min-parallelism (9) must not be higher than {prefix}max-parallelism (8)."
    ]


def test_a_region_that_is_told_of_late_changes_nothing() -> None:
    job = running()
    order = job.orders["customers"]
    job.finish("customers")
    before = job.state
    job.do(RegionFinished(1, order.region, order.run))
    assert job.state is before
    job.do(RegionFinished(1, 77, 1))
    assert job.state is before


def test_results_go_when_nobody_reads_them_any_more() -> None:
    job = running().finish("customers").finish("orders")
    assert len(job.state.batch.results) == 2  # type: ignore[union-attr]
    job.finish("joined")
    (left,) = job.state.batch.results  # type: ignore[union-attr]
    assert left.dataset.startswith(job.graph.by_name["joined"].id)


def test_a_region_starts_although_other_results_of_its_input_are_given_up() -> None:
    """Found by the simulator: a vertex leaves two results, and the readers of one are finished before the other's."""
    document = {
        "name": "fan",
        "type": "BATCH",
        "vertices": [
            {"name": "a", "source": {"format": "parquet", "path": "/a"}},
            {
                "name": "b",
                "inputs": [{"vertex": "a", "keys": ["k"], "exchange": "BLOCKING"}],
                "sql": "SELECT 1 FROM a",
            },
            {
                "name": "c",
                "inputs": [
                    {"vertex": "a", "partitioner": "BROADCAST", "exchange": "BLOCKING"},
                    {"vertex": "b", "keys": ["k"], "exchange": "BLOCKING"},
                ],
                "sql": "SELECT 1 FROM a, b",
            },
            {"name": "d", "inputs": ["c"], "sink": {"format": "noop"}},
        ],
    }
    job = BatchJob(parse_document(document)).run().finish("a").finish("b")
    assert list(job.orders) == ["c+d"]


def test_results_count_until_the_job_is_to_end() -> None:
    job = running().finish("customers")
    (kept,) = orders_for(job.state, 1).results
    lost = running().finish("customers").do(AttemptFailed(1, "killed", stopped=False))
    assert (lost.kind, orders_for(lost.state, 1).stop) == ("Restarting", "kill")
    assert orders_for(lost.state, 1).results == (kept,)
    lost.do(AttemptStopped(1))
    # Its driver may still ask: there is no plan in force now, and the results count as before.
    assert orders_for(lost.state, 1) == Orders(0, {}, "kill", 1, results=(kept,))
    job.do(CancelRequested(None))
    assert orders_for(job.state, 1).stop == "kill" and orders_for(job.state, 1).results == ()


def test_a_batch_job_has_nothing_to_stop_at() -> None:
    with pytest.raises(InvalidTransition, match="cancel it instead"):
        step(running().state, StopRequested("t"), 0)

"""A graph document whose vertices Spark has not analysed yet: what bounds may ask for, and what becomes of them."""

from __future__ import annotations

import pytest

from app.documents.graph import parse_document
from app.model import statefulness as model
from app.model.job_state.versions import JobVersion
from app.model.jobgraph import JobGraph
from app.model.requirements import Deadline, OnTimeout
from app.scheduler.adaptive.effects import StartAttempt
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptRunning,
    GraphAnalysed,
    StateRepartitioned,
    VersionRequested,
)
from app.store.codec import dump_state, load_state
from app.worker.refusals import InvalidRequest
from app.worker.requests.requirements import decide_update
from app.worker.views import RequirementsUpdate
from tests.unit.scheduler.driving import Job

DOCUMENT = {
    "name": "job",
    "type": "STREAMING",
    "vertices": [
        {"name": "in", "source": {"format": "rate"}},
        {"name": "agg", "inputs": ["in"], "sql": "SELECT count(*) AS n FROM in"},
        {"name": "map", "inputs": ["agg"], "sql": "SELECT n FROM agg"},
        {"name": "out", "inputs": ["map"], "sink": {"format": "noop", "outputMode": "update"}},
    ],
}
GRAPH = parse_document(DOCUMENT)
IN, AGG, MAP, OUT = (vertex.id for vertex in GRAPH.vertices)
LIMIT = 32768
MOST = {"agg": {"maxParallelism": 8}, "map": {"maxParallelism": 12}}


def submitted(graph: JobGraph = GRAPH, **options: object) -> Job:
    return Job(graph, upper=1, options=options)


def put(job: Job, agg: int, of_map: int, deadline: Deadline | None = None) -> Job:
    return job.put_each(deadline, **{"in": (1, 1), "agg": (1, agg), "map": (1, of_map), "out": (1, 1)})


def analysed(job: Job, *stateful: str, fixed: str | None = None, **given: int) -> Job:
    """``given``: the state partitions of agg in the graph that the driver was given, if they are not those of now."""
    known = model.analysed(job.state.graph, stateful).by_id
    told = tuple(
        (vertex, given.get(known[vertex].name, known[vertex].max_parallelism)) for vertex in stateful
    )
    return job.do(GraphAnalysed(job.state.attempt, told, fixed))


def uppers(job: Job) -> list[int]:
    return [own.upper for _, own in job.state.requirements]


def most(job: Job) -> list[int]:
    return [vertex.max_parallelism for vertex in job.state.graph.vertices]


def test_nothing_changes_but_what_is_known() -> None:
    job = submitted().submit(2)
    before = job.state.requirements
    analysed(job, AGG)
    assert (most(job), job.state.requirements) == ([128, 12, 128, 128], before)
    assert [vertex.stateful for vertex in job.state.graph.vertices] == [False, True, False, False]
    after = job.state
    assert analysed(job, AGG).state is after, "it is told again by the next attempt"
    assert job.starts().commit().kind == "Executing"


def test_bounds_before_are_what_the_state_begins_with() -> None:
    job = put(submitted(), 20, 20)
    job.submit(30)
    assert job.effect(StartAttempt).plan.parallelism == ((IN, 1), (AGG, 20), (MAP, 20), (OUT, 1))
    analysed(job, AGG)
    assert (most(job), uppers(job)) == ([128, 20, 128, 128], [1, 20, 20, 1])
    assert job.state.partitions.repartition is None and job.starts().commit().parallelism == [1, 20, 20, 1]


def test_the_highest_bound_is_what_turns_out_possible() -> None:
    job = put(submitted(), LIMIT, LIMIT).submit(30)
    version = job.state.requirements.version
    assert [count for _, count in job.effect(StartAttempt).plan.parallelism] == [1, 12, 12, 1]
    analysed(job, AGG)
    assert (uppers(job), job.state.requirements.version) == ([1, 12, 128, 1], version + 1)
    assert "The upper bound of agg is 12 and not 32768, which stood for the highest one." in job.open.message
    job.starts().commit().wait(60_000).commit().applied().commit()
    assert job.parallelism == [1, 12, 30, 1], "what keeps no state can have more"


def test_a_bound_that_is_not_possible_is_lowered_with_a_sentence() -> None:
    job = put(submitted(), 500, 500).submit(30)
    analysed(job, AGG)
    assert uppers(job) == [1, 12, 128, 1]
    told = job.state.requirements.reason or ""
    assert (
        "The upper bound of agg is 12 and not 500. Its state has 12 partitions, and at most 128 can be"
        in told
    )
    assert "The upper bound of map is 128 and not 500. It has no state that could be redistributed." in told


def test_what_a_driver_cannot_redistribute_stays_as_it_was() -> None:
    job = submitted().submit(30)
    analysed(put(job, 20, LIMIT), AGG, fixed="this Spark cannot")
    assert (uppers(job), most(job)) == ([1, 12, 128, 1], [128, 12, 128, 128])
    reason = job.state.requirements.reason or ""
    assert (
        "which is the most: this Spark cannot. The upper bound of map is 128 and not 32768, which stood"
        in reason
    )


def test_bounds_after_the_start_are_a_redistribution_of_what_keeps_state() -> None:
    job = analysed(put(submitted().submit(30), 20, 20), AGG).starts().commit().wait(60_000)
    job.commit().stops()
    begun = job.state.partitions.repartition
    assert begun is not None and begun.before == ((AGG, 12),) and begun.after == ((AGG, 20),)


def test_numbers_that_were_asked_for_since_the_driver_was_given_its_graph_are_not_there_yet() -> None:
    """While map was taken for stateful, its 12 partitions were the query's, and more of agg seemed to be free."""
    document = {
        **DOCUMENT,
        "vertices": [{**one, **MOST.get(one["name"], {})} for one in DOCUMENT["vertices"]],
    }
    job = put(submitted(parse_document(document)).submit(30), 9, 1)
    job.do(AttemptFailed(1, "killed", stopped=True, outside=True)).wait(60_000)
    analysed(put(job, 10, 1), AGG, agg=9)
    assert job.state.graph.by_id[AGG].max_parallelism == 9
    begun = job.state.partitions.repartition
    assert begun is not None and (begun.before, begun.after) == (((AGG, 8),), ((AGG, 9),))
    job.do(StateRepartitioned(job.state.attempt, ((OUT, 9),))).starts().commit().wait(60_000).commit().stops()
    begun = job.state.partitions.repartition
    assert begun is not None and (begun.before, begun.after) == (((AGG, 9),), ((AGG, 10),))


def test_a_redistribution_that_was_begun_is_of_what_keeps_state() -> None:
    """The first attempt died before Spark had analysed anything."""
    job = put(submitted().submit(30), 20, 20)
    job.do(AttemptFailed(1, "killed", stopped=True, outside=True)).wait(60_000)
    begun = job.state.partitions.repartition
    assert begun is not None and dict(begun.before) == {AGG: 12, MAP: 12}
    analysed(job, AGG)
    begun = job.state.partitions.repartition
    assert begun is not None and begun.before == ((AGG, 12),)
    job.do(StateRepartitioned(job.state.attempt, ((OUT, 20),)))
    assert job.state.partitions.repartition is None and job.starts().commit().parallelism == [1, 20, 20, 1]


@pytest.mark.parametrize(
    "settings",
    [
        {"slotwise.state.repartition.enabled": "false"},
        {"spark.sql.streaming.stateStore.providerClass": "org.example.OtherProvider"},
    ],
)
def test_what_is_known_to_be_impossible_is_not_begun_before_the_analysis(settings: dict[str, str]) -> None:
    own = {key: value for key, value in settings.items() if key.startswith("slotwise.")}
    job = Job(parse_document({**DOCUMENT, "config": settings}), upper=1, options=own)
    put(job.submit(30), 20, 20)
    job.do(AttemptFailed(1, "killed", stopped=True, outside=True)).wait(60_000)
    assert job.state.partitions.repartition is None and most(job) == [128, 12, 12, 128]
    analysed(job, AGG)
    assert uppers(job) == [1, 12, 20, 1]


@pytest.mark.parametrize("fixed", [None, "this Spark cannot"])
def test_numbers_of_state_partitions_that_are_not_possible_are_asked_for_no_more(fixed: str | None) -> None:
    job = submitted().submit(2)
    wanted = dict.fromkeys((IN, AGG, MAP, OUT), (1, 1))
    asked = RequirementsUpdate(wanted, state_partitions={AGG: 16, MAP: 20})
    decided = decide_update(job.state, asked, job.now_ms, 0)
    assert decided.event is not None
    job.do(decided.event)
    left = analysed(job, AGG, fixed=fixed).state.requirements
    assert left.state_partitions == (() if fixed else ((AGG, 16),))
    assert "The statePartitions 20 of map are not possible. It has no state" in (left.reason or "")


def test_nothing_is_redistributed_where_nothing_keeps_state() -> None:
    job = put(submitted().submit(30), 20, 20)
    job.do(AttemptFailed(1, "killed", stopped=True, outside=True)).wait(60_000)
    analysed(job)
    assert job.state.partitions.repartition is None and most(job) == [128] * 4
    assert job.do(AttemptRunning(job.state.attempt)).commit().parallelism == [1, 20, 20, 1]


def test_bounds_that_wait_for_their_deadline_are_lowered_with_those_that_hold() -> None:
    job = put(submitted(), LIMIT, 1).submit(2)
    put(job, 500, 1, Deadline(job.now_ms + 600_000, OnTimeout.ROLLBACK))
    analysed(job, AGG)
    assert uppers(job)[1] == 12
    (one,) = job.state.queued
    assert [own.upper for _, own in one.bounds] == [12], "what Spark can know is the state of agg"


def test_reactive_mode_follows_the_slots_as_far_as_state_allows() -> None:
    job = Job(GRAPH, upper=LIMIT, options={"scheduler-mode": "reactive"}).submit(30)
    assert [count for _, count in job.effect(StartAttempt).plan.parallelism] == [30, 12, 12, 30]
    assert uppers(analysed(job, AGG)) == [128, 12, 128, 128]


def test_what_is_known_is_stored() -> None:
    job = put(submitted(), 20, 20).submit(30)
    again = load_state(dump_state(job.state), GRAPH, job.state.options)
    assert again.graph == job.state.graph
    state = analysed(job, AGG).state
    assert load_state(dump_state(state), state.graph, state.options).graph == state.graph


def test_a_new_version_does_what_the_one_before_did_until_spark_says_otherwise() -> None:
    job = analysed(put(submitted(), 8, 30).submit(40), AGG).starts().commit()
    job.do(VersionRequested(JobVersion(2, GRAPH, job.state.options)))
    job.stops()
    assert [vertex.stateful for vertex in job.state.graph.vertices] == [False, True, False, False]
    assert (uppers(job), most(job)) == ([1, 8, 30, 1], [128, 12, 128, 128])
    assert [count for _, count in job.effect(StartAttempt).plan.parallelism] == [1, 8, 30, 1]
    assert analysed(job, AGG, MAP).state.graph.by_id[MAP].max_parallelism == 12
    assert uppers(job) == [1, 8, 30, 1], "its state can be redistributed"


def test_a_vertex_that_the_graph_has_not_is_passed_over() -> None:
    job = submitted().submit(2)
    job.do(GraphAnalysed(1, (("f" * 32, 12), (AGG, 12))))
    assert [vertex.stateful for vertex in job.state.graph.vertices] == [False, True, False, False]


@pytest.mark.parametrize("upper", [32769, 100_000])
def test_a_bound_above_the_limit_is_refused(upper: int) -> None:
    job = submitted()
    wanted = dict.fromkeys((IN, AGG, MAP, OUT), (1, 1)) | {AGG: (1, upper)}
    with pytest.raises(InvalidRequest) as raised:
        decide_update(job.state, RequirementsUpdate(wanted), job.now_ms, 0)
    assert str(raised.value).endswith("exceeds its maximum parallelism 32768.")

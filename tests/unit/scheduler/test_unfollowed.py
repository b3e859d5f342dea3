"""A plan that Spark does not follow: the rescale is a restart, and so is the next one of the same vertex, at once."""

from __future__ import annotations

from typing import Any

from app.model import ids
from app.model.plan import Rung
from app.model.requirements import Bounds, Requirements
from app.model.rescale import TerminalState
from app.scheduler.adaptive.effects import SendPlan
from app.scheduler.adaptive.events import BatchCompleted, PlanApplied, RequirementsUpdated
from tests.unit.scheduler.driving import Job


def put(job: Job, names: tuple[str, ...], upper: int) -> None:
    """Other upper bounds for these vertices, 4 for all others."""
    job.version += 1
    pairs = tuple((each.id, Bounds(1, upper if each.name in names else 4)) for each in job.graph.vertices)
    uuid = ids.derive_id("requirements", job.version)
    job.do(RequirementsUpdated(Requirements(uuid, job.version, pairs)))


def test_a_plan_that_spark_does_not_follow_is_brought_into_force_by_a_restart() -> None:
    job = Job(upper=4).run().hold(4)
    why = "Vertex a has 2 tasks instead of 4."
    told = ((job.graph.vertices[0].id, why),)
    job.do(PlanApplied(1, job.state.plan_version, not_followed=told))
    assert job.kind == "Restarting"
    assert dict(job.state.phase.target) == {one.id: 4 for one in job.graph.vertices}
    job.stops(driver_alive=True)
    job.starts()
    job.do(PlanApplied(2, job.state.plan_version, not_followed=told))
    assert job.kind == "Executing", "once is enough"
    record = job.records[-1]
    assert (record.terminal_state, record.rung) == (TerminalState.COMPLETED, Rung.QUERY_RESTART)
    assert record.message == f"{why} So its queries are restarted. The restart has not changed this: {why}"


def test_a_vertex_that_did_not_follow_is_restarted_at_once_the_next_time() -> None:
    job = Job(upper=4).run().hold(4)
    first, second = job.graph.vertices[:2]
    why = f"Vertex {first.name} has 2 tasks instead of 4."
    told: dict[str, Any] = {"not_followed": ((first.id, why),)}
    job.do(PlanApplied(1, job.state.plan_version, **told))
    assert job.kind == "Restarting"
    job.stops(driver_alive=True)
    job.starts()
    job.do(PlanApplied(2, job.state.plan_version, **told))

    # Another vertex is changed in place, and what is known already does not bring a restart about.
    put(job, (second.name,), 3)
    assert job.kind == "Rescaling"
    job.do(PlanApplied(2, job.state.plan_version, **told))
    assert job.kind == "Executing" and job.records[-1].rung is Rung.IN_PLACE

    put(job, (first.name, second.name), 3)
    job.wait(60_000)
    assert job.kind == "Restarting"
    job.stops(driver_alive=True)
    job.starts().commit()
    record = job.records[-1]
    assert record.rung is Rung.QUERY_RESTART
    told_why = f"Vertex {first.name} is not rescaled in place: Spark did not run it as its plan said."
    assert record.message is not None and record.message.startswith(told_why)


def test_one_that_is_seen_not_to_follow_does_not_get_another_plan_in_place() -> None:
    job = Job(upper=4).run()
    first, second = job.graph.vertices[:2]
    job.hold(4).do(BatchCompleted(1, "q", 9, 1, not_followed=((first.id, "A does not."),)))
    put(job, (second.name,), 3)
    assert job.kind == "Rescaling" and not job.has_effect(SendPlan)
    job.applied()
    assert job.kind == "Rescaling" and job.effect(SendPlan).plan.parallelism[1] == (second.id, 3)


def test_a_vertex_that_is_known_hides_no_other() -> None:
    job = Job(upper=4).run().hold(4)
    first, second = job.graph.vertices[:2]
    version = job.state.plan_version
    job.do(PlanApplied(1, version))
    job.do(BatchCompleted(1, "q", 9, version, not_followed=((first.id, "A does not."),)))

    put(job, (second.name,), 3)
    told = ((first.id, "A does not."), (second.id, "B does not."))
    job.do(PlanApplied(1, job.state.plan_version, not_followed=told))
    assert job.kind == "Restarting"
    job.stops(driver_alive=True)
    job.starts()
    job.do(PlanApplied(2, job.state.plan_version, not_followed=told))
    assert job.kind == "Executing"
    assert job.records[-1].message == (
        "B does not. So its queries are restarted. A does not. The restart has not changed this: B does not."
    )
    # Now both are known.
    for vertex in (first, second):
        put(job, (vertex.name,), 2)
        job.wait(60_000)
        assert job.kind == "Restarting"
        job.stops(driver_alive=True)
        job.starts().commit()


def test_a_batch_tells_of_a_vertex_that_follows_no_more() -> None:
    job = Job(upper=4).run().hold(4)
    job.do(PlanApplied(1, job.state.plan_version))
    first, second = job.graph.vertices[:2]
    version = job.state.plan_version
    # Nothing is watched any more: a batch that has nothing to tell changes nothing.
    job.wait(600_000)
    job.do(BatchCompleted(1, "q", 8, version))
    assert job.state.trial.watch is None
    job.do(BatchCompleted(1, "q", 9, version, not_followed=((first.id, "It is so."),)))
    assert job.kind == "Executing"
    put(job, (second.name,), 3)
    assert job.kind == "Rescaling", "others are changed in place as before"
    job.do(PlanApplied(1, job.state.plan_version))
    put(job, (first.name,), 3)
    job.wait(60_000)
    assert job.kind == "Restarting"

"""Whether a job can give slots back while it runs, and how many of them without a restart."""

from __future__ import annotations

from app.model.plan import Plan, Rung
from app.model.value import value
from app.scheduler.adaptive.attainable import rung_between
from app.scheduler.adaptive.hold import demand
from app.scheduler.adaptive.slot_declaration import plans_of
from app.scheduler.adaptive.state import JobState, Restarting


@value
class Releasable:
    """``running``: something of the job runs in its slots. ``can_give``: it can give some back meanwhile.
    ``in_place_floor``: so many it has to keep to do so in place; with fewer its queries would restart."""

    running: bool = False
    can_give: bool = True
    in_place_floor: int = 0


def releasable_of(state: JobState) -> Releasable:
    """What the job can give now, by the plan in force or on its way.

    The driver of a BATCH job has its cores for life. A vertex whose parallelism stands in Spark's plan changes by a
    restart only; but it may be at its upper bound with fewer slots as well, and then they are free to go.
    """
    if not state.attempt_alive:
        return Releasable()
    if state.graph.runs_by_regions:
        return Releasable(running=True, can_give=False)
    plans = plans_of(state)
    if not plans or isinstance(state.phase, Restarting):
        # It does not run on with these slots for sure.
        return Releasable(running=True)
    return Releasable(running=True, in_place_floor=_in_place_floor(state, plans[-1]))


def _in_place_floor(state: JobState, plan: Plan) -> int:
    """With fewer slots no vertex is more parallel, so what holds of a number holds of all between it and the plan's."""
    now = dict(plan.parallelism)
    goal = demand(state)

    def is_in_place(count: int) -> bool:
        then = goal.parallelism(count)
        return then is not None and rung_between(state.graph, now, then) in (None, Rung.IN_PLACE)

    # From `enough` slots on it is so, or that is the plan's own number; with `too_few` it is not.
    enough, too_few = plan.slot_count, goal.minimal - 1
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        if is_in_place(middle):
            enough = middle
        else:
            too_few = middle
    return enough

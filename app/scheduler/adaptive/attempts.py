"""An attempt of a job: how it is started, taken up, and restarted for a rescale. `stops` has how it ends.

Each of the phases that an attempt goes through is entered here, and begins with its entry in the transition table.
"""

from __future__ import annotations

from typing import Final

from app.model.job_state.failures import RestartState
from app.model.plan import Rung
from app.scheduler.adaptive import repartition, timeline, transition_manager, trial
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.effects import StartAttempt
from app.scheduler.adaptive.events import AttemptRunning
from app.scheduler.adaptive.goal import longest_cooldown_ms
from app.scheduler.adaptive.in_place import plan_for_slots
from app.scheduler.adaptive.journal import AttemptBegun
from app.scheduler.adaptive.state import (
    CreatingExecutionGraph,
    Executing,
    JobState,
    Restarting,
    WaitingForResources,
)

START_TIMER: Final = "start-timeout"


# ---- before it runs


def wait_for_slots(draft: Draft, exception: str | None = None) -> None:
    """Wait for the slots of the next attempt, which is started at once if all that are desired are there."""
    draft.enter(WaitingForResources(transition_manager.start(draft.now_ms, 0)), exception)
    draft.begin()


def create_execution_graph(draft: Draft) -> None:
    """Assign slots, all or nothing, and start the next attempt. The caller knows that the slots suffice."""
    repartition.begin(draft)
    state = draft.state
    plan = plan_for_slots(draft, state.last_plan)
    if plan is None:
        raise draft.refuse("There are too few slots for an attempt")
    reuse = state.driver.waits
    rung = Rung.QUERY_RESTART if reuse else Rung.NEW_DRIVER
    if state.partitions.repartition is not None:
        rung = max(rung, Rung.STATE_REPARTITION, key=tuple(Rung).index)
    timeline.plan_chosen(draft, plan, rung)
    draft.tell(AttemptBegun(state.attempt + 1))
    draft.set(attempt=state.attempt + 1, plan_version=plan.version)
    draft.set_part("driver", alive=True, waits=False, started=())
    draft.enter(CreatingExecutionGraph(plan, blind=state.cluster_unreachable))
    draft.emit(StartAttempt(draft.state.attempt, plan, reuse_driver=reuse))
    draft.arm(START_TIMER, draft.now_ms + start_timeout_ms(draft.state))


def start_timeout_ms(state: JobState) -> int:
    """How long an attempt may take until it runs."""
    longer_ms = state.options.repartition_timeout_ms if state.partitions.repartition is not None else 0
    return state.options.start_timeout_ms + state.options.cluster_start_ms + longer_ms


def take_up_plan(draft: Draft, event: AttemptRunning) -> bool:
    """Put the plan of the attempt into force; False if it is too late because the attempt is being killed."""
    phase = draft.phase_as(CreatingExecutionGraph)
    if phase.failure is not None:
        return False
    if event.begun:
        repartition.leave_to_queries(draft)
    if draft.state.partitions.repartition is not None and not draft.state.partitions.repartition.late:
        raise draft.refuse("The attempt runs, and its driver has not said that the state was redistributed")
    before = draft.state.last_plan
    draft.set(plan=phase.plan, last_plan=phase.plan)
    draft.set_part("recovery", creation=RestartState())
    draft.set_part("supply", stayed=())
    trial.put_on_trial(draft, phase.plan, before, event.before, ran=False)
    timeline.redraw_for_plan_in_force(draft, phase.plan)
    return True


# ---- while it runs


def run_on(draft: Draft, *, first_batch: bool) -> None:
    """Enter Executing with a new manager, and review what changed while another phase was current."""
    began = transition_manager.start(draft.now_ms, longest_cooldown_ms(draft.state.options))
    draft.enter(Executing(began, first_batch=first_batch and not draft.state.is_before_query))
    draft.begin()


# ---- its end


def restart_for_rescale(draft: Draft, target: dict[str, int]) -> None:
    """Stop at a batch boundary and start again at ``target``. No failure, so no restart strategy and no backoff."""
    trial.end_watch_if_over(draft)
    draft.enter(Restarting(backoff_ms=0, target=tuple(target.items())))
    draft.set(num_rescales=draft.state.num_rescales + 1)
    draft.begin()

"""Whether more tasks have brought anything. Flink's autoscaler calls it effectiveness detection.

A source may have fewer parts than tasks, a host fewer cores than slots, a database a lock: then a job that falls behind
is no faster with more tasks, and asks for more and more of them. So each step up is judged once it is in force, while
the job still needs more: if it brought less than a tenth of what was expected, the bounds before come back, and no more
are declared for a while.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from app.autoscaler.policy import Policy
from app.autoscaler.seen import Held, Load, Memory, Snapshot, StepUp

_LEAST_PART: Final = 0.1
"""Of the expected gain, as `scaling.effectiveness.threshold` of Flink's autoscaler."""
_LEAST_GAIN: Final = 0.3
"""A smaller one than this is not told from what rows per second change by themselves."""
HELD_MS: Final = 3_600_000


def is_declared(step: StepUp, seen: Snapshot) -> bool:
    """Whether its bounds are those that hold: the server may have refused them, or another have declared others."""
    return all(
        each.effective.upper == step.after.get(each.id, each.effective.upper) for each in seen.vertices
    )


def is_in_force(step: StepUp, seen: Snapshot) -> bool:
    """Whether a vertex has more tasks than it had before."""
    return _most_more(step, seen) > 0


def is_past(step: StepUp, seen: Snapshot, policy: Policy) -> bool:
    """Whether it is in force for long and could not be judged, as slots come and go."""
    longest_ms = 2 * (policy.stabilization_ms + policy.window_ms)
    return is_in_force(step, seen) and seen.now_ms - step.at_ms > longest_ms


def gain_of(step: StepUp, load: Load) -> float:
    """By which part more rows are worked off in a second of batches than before the step."""
    return load.rows_per_busy_second / step.rows_per_busy_second - 1


def brought_nothing(step: StepUp, seen: Snapshot, load: Load) -> bool:
    """A job that lacks slots has not got all of the tasks: no more can be expected than those bring. Of several queries
    it is not known which of them has gained."""
    expected = min(step.expected_gain, _most_more(step, seen))
    return len(seen.queries) == 1 and expected >= _LEAST_GAIN and gain_of(step, load) < _LEAST_PART * expected


def is_measured(seen: Snapshot, load: Load, policy: Policy) -> bool:
    """Whether the figures are those of the tasks in force, without their first minute, in which they warm up."""
    ran_ms = seen.now_ms - seen.since_ms
    return ran_ms >= policy.stabilization_ms + policy.window_ms and load.length_ms >= policy.window_ms


def _most_more(step: StepUp, seen: Snapshot) -> float:
    """By which part more tasks the vertex has that got most."""
    return max(
        (each.parallelism / step.before[each.id] - 1 for each in seen.vertices if each.id in step.before),
        default=0.0,
    )


def step_up(
    seen: Snapshot, load: Load, higher: dict[str, int], used: float, expected: float
) -> StepUp | None:
    """The step to the upper bounds ``higher``, by which the part ``used`` of the time should become ``expected``; None
    if nothing could be said of it later."""
    if load.rows_per_busy_second <= 0 or expected <= 0 or used <= expected:
        return None
    before = {each.id: each.effective.upper for each in seen.vertices if each.id in higher}
    return StepUp(before, higher, load.rows_per_busy_second, used / expected - 1, seen.now_ms)


def held_back(memory: Memory, step: StepUp, now_ms: int) -> Memory:
    """``step`` brought nothing."""
    held = dict(memory.held.upper) if memory.held is not None else {}
    return replace(memory, step=None, held=Held({**held, **step.before}, now_ms + HELD_MS))

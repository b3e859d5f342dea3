"""Restart strategies: none, fixed-delay, failure-rate, exponential-delay, with production Flink's semantics.

`on_failure` is told of every failure that nothing else answers, of an attempt (`restarting.backoff_or_fail`), of a
single query (`local_failover`) and of a start (`starting`), and says whether a restart is allowed and after which
delay. Rescales never come here. Jitter is derived from (job id, attempts counted, time) instead of being drawn, so that
the same history always gives the same delays.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from app.model.job_state.failures import RestartState
from app.model.option_values import MAX_COUNT, format_duration_ms
from app.model.options import RestartStrategyOptions
from app.scheduler.adaptive.state import JobState

_LARGE: Final = 2.0**50
"""Far above any backoff, and far below where floats stop being exact about milliseconds."""


@dataclass(frozen=True, slots=True)
class RestartDecision:
    """``delay_ms`` begins in Restarting, once the attempt that failed is dead. None: no restart is allowed."""

    state: RestartState
    delay_ms: int | None


def of_job(state: JobState, now_ms: int) -> RestartDecision:
    """`on_failure` by the options and the history of a job."""
    return on_failure(state.options.restart_strategy, state.recovery.strategy, now_ms, state.job_id)


def is_first(before: RestartState, state: JobState) -> bool:
    """Whether the failure that was just counted is the first in a row, of a job that has committed a batch and has no
    strategy of its own: an end of its driver from outside is no reason to wait then."""
    if state.trial.unproven or state.options.restart_strategy != RestartStrategyOptions():
        return False
    now = state.recovery.strategy
    return now.attempts == 1 and now.next_restart_ms != before.next_restart_ms


def on_failure(
    options: RestartStrategyOptions, state: RestartState, now_ms: int, seed: str
) -> RestartDecision:
    """Count the failure at ``now_ms`` and decide. ``seed`` is what the jitter is derived from, besides the time."""
    match options.type:
        case "fixed-delay":
            counted = RestartState(attempts=min(state.attempts + 1, MAX_COUNT))
            return RestartDecision(
                counted, options.fixed_delay_ms if counted.attempts <= options.fixed_attempts else None
            )
        case "failure-rate":
            return _failure_rate(options, state, now_ms)
        case "exponential-delay":
            return _exponential(options, state, now_ms, seed)
        case _:
            return RestartDecision(state, None)


def _failure_rate(options: RestartStrategyOptions, state: RestartState, now_ms: int) -> RestartDecision:
    kept = options.max_failures_per_interval + 1
    # Times in the future are from before the clock was set back, and say nothing about the interval.
    times = (*(one for one in state.failure_times_ms if one <= now_ms), now_ms)[-kept:]
    tolerated = len(times) < kept or now_ms - times[0] > options.failure_rate_interval_ms
    return RestartDecision(
        RestartState(attempts=min(state.attempts + 1, MAX_COUNT), failure_times_ms=times),
        options.failure_rate_delay_ms if tolerated else None,
    )


def _exponential(
    options: RestartStrategyOptions, state: RestartState, now_ms: int, seed: str
) -> RestartDecision:
    attempts, next_restart_ms = state.attempts, state.next_restart_ms
    if next_restart_ms is not None and next_restart_ms - now_ms > options.max_backoff_ms:
        next_restart_ms = None  # no backoff is so long: the clock was set back
    if next_restart_ms is None or now_ms > next_restart_ms:
        if next_restart_ms is not None and now_ms - next_restart_ms >= options.reset_backoff_threshold_ms:
            attempts = 0
        next_restart_ms = now_ms + backoff_ms(options, attempts, now_ms, seed)
        attempts = min(attempts + 1, MAX_COUNT)
    allowed = attempts <= options.attempts_before_reset_backoff
    return RestartDecision(
        RestartState(attempts=attempts, next_restart_ms=next_restart_ms),
        max(0, next_restart_ms - now_ms) if allowed else None,
    )


def backoff_ms(options: RestartStrategyOptions, attempts: int, now_ms: int, seed: str) -> int:
    """max(initial, min(initial x multiplier ^ attempts + jitter, max)); never below the initial backoff."""
    try:
        base = min(options.initial_backoff_ms * options.backoff_multiplier**attempts, _LARGE)
    except OverflowError:
        base = _LARGE
    jitter = _uniform(int(base * options.jitter_factor), f"{seed}/{attempts}/{now_ms}")
    return max(options.initial_backoff_ms, min(int(base) + jitter, options.max_backoff_ms))


def _uniform(spread: int, seed: str) -> int:
    """An integer of [-spread, spread] that depends on ``seed`` only, each as likely as the other."""
    if spread <= 0:
        return 0
    number = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big")
    return number % (2 * spread + 1) - spread


def describe(options: RestartStrategyOptions) -> str:
    """The strategy in words, for the message of a failure that is not recovered from."""
    match options.type:
        case "fixed-delay":
            delay = format_duration_ms(options.fixed_delay_ms)
            return f"fixed-delay (attempts {options.fixed_attempts}, delay {delay})"
        case "failure-rate":
            return (
                f"failure-rate (at most {options.max_failures_per_interval} failures in "
                f"{format_duration_ms(options.failure_rate_interval_ms)}, "
                f"delay {format_duration_ms(options.failure_rate_delay_ms)})"
            )
        case "exponential-delay":
            most = options.attempts_before_reset_backoff
            return (
                f"exponential-delay (backoff {format_duration_ms(options.initial_backoff_ms)} to "
                f"{format_duration_ms(options.max_backoff_ms)}, multiplier {options.backoff_multiplier:g}, "
                f"{'any number of' if most == MAX_COUNT else f'at most {most}'} attempts before a reset after "
                f"{format_duration_ms(options.reset_backoff_threshold_ms)})"
            )
        case _:
            return "none (no restart strategy)"


def in_words(state: JobState, now_ms: int) -> list[str]:
    """How many failures count now, and by which strategy."""
    options, counted = state.options.restart_strategy, state.recovery.strategy
    count = counted.attempts
    if options.type == "failure-rate":
        since_ms = now_ms - options.failure_rate_interval_ms
        count = sum(at_ms >= since_ms for at_ms in counted.failure_times_ms)
    elif now_ms - (counted.next_restart_ms or now_ms) >= options.reset_backoff_threshold_ms:
        count = 0
    return [f"{count} failure(s) count for the restart strategy {describe(options)}."] if count else []

"""Restart strategies with production Flink's numbers, and what a clock that is set back does to them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.model.job_state.failures import RestartState
from app.model.options import RestartStrategyOptions
from app.scheduler.adaptive.restart_strategy import backoff_ms, describe, on_failure

EXACT = RestartStrategyOptions(jitter_factor=0.0)
T0 = 1_700_000_000_000


def delays(options: RestartStrategyOptions, *at_ms: int) -> list[int | None]:
    """The delay after a failure at each instant, counted from T0."""
    state, found = RestartState(), []
    for instant in at_ms:
        decision = on_failure(options, state, T0 + instant, "job")
        state = decision.state
        found.append(decision.delay_ms)
    return found


def test_none_allows_nothing() -> None:
    assert delays(RestartStrategyOptions(type="none"), 0) == [None]


def test_fixed_delay_counts_to_its_attempts_and_never_forgets() -> None:
    options = RestartStrategyOptions(type="fixed-delay", fixed_attempts=2, fixed_delay_ms=5_000)
    assert delays(options, 0, 10**6, 10**9) == [5_000, 5_000, None]
    assert delays(RestartStrategyOptions(type="fixed-delay"), 0, 1) == [1_000, None]
    assert delays(RestartStrategyOptions(type="fixed-delay", fixed_attempts=0), 0) == [None]


def test_failure_rate_tolerates_the_maximum_in_the_interval_and_one_more_is_fatal() -> None:
    options = RestartStrategyOptions(
        type="failure-rate", max_failures_per_interval=2, failure_rate_interval_ms=60_000
    )
    assert delays(options, 0, 1, 2) == [1_000, 1_000, None]
    assert delays(options, 0, 1, 60_000) == [1_000, 1_000, None], "exactly the interval is within it"
    assert delays(options, 0, 1, 60_001) == [1_000, 1_000, 1_000]
    assert delays(options, 0, 1, 60_001, 60_001) == [1_000, 1_000, 1_000, None]


def test_l24_exponential_delays_grow_by_half_up_to_a_minute() -> None:
    state, now, found = RestartState(), T0, []
    for _ in range(13):
        decision = on_failure(EXACT, state, now, "job")
        assert decision.delay_ms is not None
        found.append(decision.delay_ms)
        state, now = decision.state, now + decision.delay_ms + 1
    assert found[:8] == [1_000, 1_500, 2_250, 3_375, 5_062, 7_593, 11_390, 17_085]
    assert found[8:] == [25_628, 38_443, 57_665, 60_000, 60_000]


def test_l24_failures_until_the_restart_are_one_attempt() -> None:
    """The later ones wait for the restart that is due anyway."""
    assert delays(EXACT, 0, 400, 1_000, 1_001) == [1_000, 600, 0, 1_500]


def test_l24_the_backoff_starts_anew_after_the_threshold() -> None:
    hour = 3_600_000
    assert delays(EXACT, 0, 2_000, 2_000 + 1_500 + hour - 1) == [1_000, 1_500, 2_250]
    assert delays(EXACT, 0, 2_000, 2_000 + 1_500 + hour) == [1_000, 1_500, 1_000]


def test_l24_attempts_before_reset() -> None:
    options = RestartStrategyOptions(jitter_factor=0.0, attempts_before_reset_backoff=2)
    assert delays(options, 0, 2_000, 5_000) == [1_000, 1_500, None]
    assert delays(options, 0, 2_000, 5_000 + 3_600_000) == [1_000, 1_500, 1_000]


@given(st.integers(0, 200), st.integers(0, 10**9), st.floats(0, 1), st.text(max_size=8))
def test_l24_jitter_stays_in_its_band_and_the_first_delay_is_never_below_the_initial_one(
    attempts: int, instant: int, factor: float, seed: str
) -> None:
    options = RestartStrategyOptions(jitter_factor=factor)
    delay = backoff_ms(options, attempts, T0 + instant, seed)
    base = 1_000 * 1.5**attempts
    assert 1_000 <= delay <= 60_000
    assert max(1_000, min(base * (1 - factor), 60_000)) - 1 <= delay <= min(base * (1 + factor), 60_000) + 1
    assert delay == backoff_ms(options, attempts, T0 + instant, seed), "the same history gives the same delay"


def test_jitter_spreads_jobs() -> None:
    found = {backoff_ms(RestartStrategyOptions(), 5, T0, f"job-{index}") for index in range(200)}
    assert len(found) > 150


def test_a_clock_set_back_does_not_make_a_job_wait_for_it() -> None:
    """An hour back: the next failure waits its own backoff, not the hour."""
    assert delays(EXACT, 0, -3_600_000) == [1_000, 1_500]
    for found in delays(EXACT, 0, -10, -3_600_000, -3_599_000):
        assert found is not None and found <= 60_000


def test_a_clock_set_back_does_not_make_failures_of_another_day_count() -> None:
    options = RestartStrategyOptions(type="failure-rate", max_failures_per_interval=1)
    assert delays(options, 0, -3_600_000) == [1_000, 1_000]
    assert delays(options, 0, -3_600_000, -3_599_000) == [1_000, 1_000, None]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("none", "none (no restart strategy)"),
        ("fixed-delay", "fixed-delay (attempts 1, delay 1 s)"),
        ("failure-rate", "failure-rate (at most 1 failures in 1 min, delay 1 s)"),
        (
            "exponential-delay",
            "exponential-delay (backoff 1 s to 1 min, multiplier 1.5, at most 10 attempts before a reset after 1 h)",
        ),
    ],
)
def test_a_strategy_is_named_in_words(kind: str, words: str) -> None:
    assert describe(RestartStrategyOptions(type=kind, attempts_before_reset_backoff=10)) == words


def test_a_limit_that_is_none_is_not_told_as_a_number() -> None:
    assert "any number of attempts before a reset after 1 h" in describe(RestartStrategyOptions())

"""The options that the scheduler obeys: production Flink's names and defaults, old names refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.model.option_values import InvalidValue, format_duration_ms, parse_duration_ms
from app.model.options import JobOptions, RestartStrategyOptions

SCHEDULER = "jobmanager.adaptive-scheduler."
CREATION = SCHEDULER + "retry-execution-graph-creation."
EXPONENTIAL = "restart-strategy.exponential-delay."


def parsed(mapping: dict[str, object]) -> JobOptions:
    options, errors = JobOptions.parse(mapping)
    assert errors == []
    return options


def test_defaults_of_restarts_are_production_flinks() -> None:
    assert JobOptions().restart_strategy == RestartStrategyOptions(
        type="exponential-delay",
        fixed_attempts=1,
        fixed_delay_ms=1_000,
        max_failures_per_interval=1,
        failure_rate_interval_ms=60_000,
        failure_rate_delay_ms=1_000,
        initial_backoff_ms=1_000,
        max_backoff_ms=60_000,
        backoff_multiplier=1.5,
        reset_backoff_threshold_ms=3_600_000,
        jitter_factor=0.1,
        attempts_before_reset_backoff=2**31 - 1,
    )
    assert (JobOptions().slot_idle_timeout_ms, JobOptions().exception_history_size) == (50_000, 16)


def test_defaults_of_our_own() -> None:
    """A rescale in place waits for slots only, a start that failed is tried ten times, and the history is on."""
    options = JobOptions()
    assert (options.in_place_cooldown_ms, options.in_place_max_delay_ms) == (0, 0)
    assert options.in_place_stabilization_ms == 100
    assert options.creation_retry.attempts_before_reset_backoff == 10
    assert options.rescale_history_size == 1_000


@pytest.mark.parametrize(("failures", "delay_ms"), [(1, 2_000), (2, 3_000), (5, 6_000)])
def test_max_delay_follows_from_the_failures_that_are_waited_for(failures: int, delay_ms: int) -> None:
    name = SCHEDULER + "rescale-trigger.max-checkpoint-failures"
    assert parsed({name: failures}).max_delay_ms == delay_ms
    assert parsed({name: failures, SCHEDULER + "rescale-trigger.max-delay": "7 s"}).max_delay_ms == 7_000


def test_creation_retry_has_options_of_its_own() -> None:
    options = parsed({"restart-strategy.type": "none", CREATION + "restart-strategy.type": "fixed-delay"})
    assert (options.restart_strategy.type, options.creation_retry.type) == ("none", "fixed-delay")


def test_all_errors_are_told_at_once() -> None:
    _, errors = JobOptions.parse(
        {"slot.idle.timeout": "soon", "nonsense": 1, EXPONENTIAL + "max-backoff": "1 ms"}
    )
    assert len(errors) == 3
    assert all(error.endswith(".") for error in errors)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("resource-wait-timeout", "submission.resource-wait-timeout"),
        ("resource-stabilization-timeout", "submission.resource-stabilization-timeout"),
        ("scaling-interval.min", "executing.cooldown-after-rescaling"),
        ("scaling-interval.max", "executing.resource-stabilization-timeout"),
        ("scale-on-failed-checkpoints-count", "rescale-trigger.max-checkpoint-failures"),
        ("max-delay-for-scale-trigger", "rescale-trigger.max-delay"),
    ],
)
def test_an_old_name_is_refused_with_the_new_one(old: str, new: str) -> None:
    _, errors = JobOptions.parse({SCHEDULER + old: "1 s"})
    assert errors == [f"Option {SCHEDULER}{old} is outdated: use {SCHEDULER}{new}."]


@pytest.mark.parametrize("text", ["-1", "-1 ms", "-5 s"])
def test_a_negative_wait_is_for_ever(text: str) -> None:
    assert parsed({SCHEDULER + "submission.resource-wait-timeout": text}).submission_wait_ms == -1


@pytest.mark.parametrize("text", ["", "s", "1.5 s", "--1 s", "P", "PT", "PTS", "1 s 2", None, []])
def test_what_is_no_duration(text: object) -> None:
    with pytest.raises(InvalidValue):
        parse_duration_ms(text)


@given(st.integers(0, 10**12))
def test_a_duration_that_is_written_reads_back(milliseconds: int) -> None:
    assert parse_duration_ms(format_duration_ms(milliseconds)) == milliseconds

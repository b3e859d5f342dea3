"""Scheduler options: names, values and defaults."""

from __future__ import annotations

import pytest

from app.model.options import FOREVER_MS, JobOptions

A = "jobmanager.adaptive-scheduler."


def errors(name: str, value: object) -> list[str]:
    return JobOptions.parse({name: value})[1]


def test_the_defaults_of_production_flink() -> None:
    options, found = JobOptions.parse({})
    assert found == []
    assert options.submission_wait_ms == 5 * 60_000
    assert options.submission_stabilization_ms is None
    assert options.executing_cooldown_ms == 30_000
    assert options.executing_stabilization_ms == 60_000
    assert options.max_checkpoint_failures == 2
    assert options.restart_strategy.type == "exponential-delay"
    assert options.creation_retry.attempts_before_reset_backoff == 10


def test_options_that_are_given_as_text_or_number() -> None:
    options, found = JobOptions.parse(
        {
            A + "submission.resource-wait-timeout": "-1 ms",
            A + "executing.cooldown-after-rescaling": "PT1M30S",
            A + "rescale-trigger.max-checkpoint-failures": 4,
            "restart-strategy.type": "FixedDelay",
            "restart-strategy.exponential-delay.backoff-multiplier": 2.5,
            "spark.anything": "goes",
        }
    )
    assert found == []
    assert options.submission_wait_ms == FOREVER_MS
    assert options.executing_cooldown_ms == 90_000
    assert options.max_delay_ms == 5_000, "(failures + 1) nominal intervals"
    assert options.restart_strategy.type == "fixed-delay"


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("5", 5),
        (5, 5),
        ("1 s", 1000),
        ("2min", 120_000),
        ("1 h", 3_600_000),
        ("1000000 ns", 1),
        ("PT0.5S", 500),
    ],
)
def test_durations(text: object, expected_ms: int) -> None:
    options, found = JobOptions.parse({"slot.idle.timeout": text})
    assert (options.slot_idle_timeout_ms, found) == (expected_ms, [])


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("slot.idle.timeout", "1 parsec", "the unit 'parsec' is unknown"),
        ("slot.idle.timeout", "-1 s", "must not be negative"),
        ("slot.idle.timeout", "1 ns", "a whole number of milliseconds"),
        ("slot.idle.timeout", "200000 d", "at most a hundred years"),
        ("slot.idle.timeout", True, "a duration such as"),
        ("slot.idle.timeout", 1.5, "a duration such as"),
        ("web.exception-history-size", 0, "between 1 and"),
        ("web.exception-history-size", "many", "a whole number between 1 and 2147483647"),
        (A + "prefer-minimal-taskmanagers", "maybe", "true or false is expected"),
        ("restart-strategy.exponential-delay.jitter-factor", 1.5, "a number between 0 and 1"),
        ("restart-strategy.exponential-delay.backoff-multiplier", 1, "a number greater than 1"),
        ("restart-strategy.exponential-delay.max-backoff", "1 ms", "must not be shorter than"),
        ("jobmanager.scheduler", "Default", "one of Adaptive is expected"),
        (A + "scaling-interval.min", "1 s", f"is outdated: use {A}executing.cooldown-after-rescaling."),
        (A + "min-parallelism-increase", 1, "does not exist here"),
        ("slot.idle.timeot", 1, "Did you mean slot.idle.timeout?"),
        ("zzz", 1, "Spark settings start with 'spark.'."),
    ],
)
def test_options_that_are_wrong(name: str, value: object, part: str) -> None:
    [error] = errors(name, value)
    assert error.startswith(f"Option {name}") and part in error


@pytest.mark.parametrize(
    ("text", "expected"),
    [("by-sink", None), ("By-Sink", None), ("true", True), (True, True), ("false", False)],
)
def test_batches_are_interruptible_by_their_sink_or_as_the_job_says(
    text: object, expected: bool | None
) -> None:
    options, found = JobOptions.parse(
        {"slotwise.batch.interruptible": text, "slotwise.rescale.max-wait": "0 ms"}
    )
    assert (options.batch_interruptible, options.rescale_max_wait_ms, found) == (expected, 0, [])
    assert errors("slotwise.batch.interruptible", "sometimes")


@pytest.mark.parametrize(("value", "expected"), [("by-sink", None), ("true", True), (False, False)])
def test_rows_of_a_source_are_spread_or_not(value: object, expected: bool | None) -> None:
    options, found = JobOptions.parse({"slotwise.source.spread": value})
    assert (options.source_spread, found) == (expected, [])
    assert errors("slotwise.source.spread", "always")

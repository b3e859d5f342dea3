"""Scheduler options of a job, under production Flink's names and with its defaults where it has them.

They come from the graph's ``config``: every key that does not start with ``spark.`` or ``job.autoscaler.``. All
durations are kept in milliseconds. An unknown or outdated name and a value that is not allowed are errors, one sentence
each.

Where the defaults are our own:

* ``rescale-trigger.max-delay``: production Flink takes (max-checkpoint-failures + 1) checkpoint intervals. A committed
  micro-batch is our checkpoint and has no fixed interval, so a nominal `BATCH_INTERVAL_MS` of one second stands for
  it: 3 s with the default of two failures.
* ``retry-execution-graph-creation.*``: production Flink does not retry. We do, with exponential delay and at most ten
  attempts, so that neither a driver that cannot start once nor a late TaskManager ends a job.
* ``web.adaptive-scheduler.rescale-history.size``: on, 1000 records; an open one is never evicted.
* ``slotwise.rollback.*``: production Flink has nothing like it (ADR 20).
* ``slotwise.failure.*``: nor like this (ADR 22).
* ``slotwise.in-place.*``: a rescale in place stops nothing, so by default nothing dampens it, but for a tenth of a
  second in which slots that are free can come: bounds that want more of them then lead to one rescale, not to two.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Final

from app.model.batch import DeciderRule, Skew, SkewStrategy
from app.model.option_names import (
    AUTOSCALER,
    FINAL_EXCEPTIONS,
    LOCAL_TIMEOUT,
    RECOVERABLE_EXCEPTIONS,
    USER_CODE_ATTEMPTS,
)
from app.model.option_values import (
    BOOLEAN,
    CAP,
    CLASS_NAMES,
    COUNT,
    DECIDER,
    DURATION,
    DURATION_OR_FOREVER,
    FRACTION,
    MAX_COUNT,
    MODE,
    MULTIPLIER,
    POSITIVE_COUNT,
    POSITIVE_DURATION,
    POSITIVE_SIZE,
    PRIORITY,
    SCHEDULER,
    SKEW_STRATEGY,
    STRATEGY,
    TRIGGER,
    WEIGHT,
    InvalidValue,
    Kind,
)

BATCH_INTERVAL_MS: Final = 1_000
"""The nominal interval of micro-batches from which the default of rescale-trigger.max-delay is derived."""

FOREVER_MS: Final = -1
"""The value of a wait that never ends."""


REACTIVE: Final = "reactive"

_SCHEDULER = "jobmanager.adaptive-scheduler."
_AUTO = "execution.batch.adaptive.auto-parallelism."
_SKEW = "table.optimizer.skewed-join-optimization."
_CREATION = _SCHEDULER + "retry-execution-graph-creation."


@dataclass(frozen=True, slots=True)
class RestartStrategyOptions:
    """One restart strategy: its type and the options of every type (those of the others are not used)."""

    type: str = "exponential-delay"
    fixed_attempts: int = 1
    fixed_delay_ms: int = 1_000
    max_failures_per_interval: int = 1
    failure_rate_interval_ms: int = 60_000
    failure_rate_delay_ms: int = 1_000
    initial_backoff_ms: int = 1_000
    max_backoff_ms: int = 60_000
    backoff_multiplier: float = 1.5
    reset_backoff_threshold_ms: int = 3_600_000
    jitter_factor: float = 0.1
    attempts_before_reset_backoff: int = MAX_COUNT


_STRATEGY_OPTIONS: Final[tuple[tuple[str, str, Kind], ...]] = (
    ("restart-strategy.type", "type", STRATEGY),
    ("restart-strategy.fixed-delay.attempts", "fixed_attempts", COUNT),
    ("restart-strategy.fixed-delay.delay", "fixed_delay_ms", DURATION),
    ("restart-strategy.failure-rate.max-failures-per-interval", "max_failures_per_interval", POSITIVE_COUNT),
    ("restart-strategy.failure-rate.failure-rate-interval", "failure_rate_interval_ms", POSITIVE_DURATION),
    ("restart-strategy.failure-rate.delay", "failure_rate_delay_ms", DURATION),
    ("restart-strategy.exponential-delay.initial-backoff", "initial_backoff_ms", POSITIVE_DURATION),
    ("restart-strategy.exponential-delay.max-backoff", "max_backoff_ms", POSITIVE_DURATION),
    ("restart-strategy.exponential-delay.backoff-multiplier", "backoff_multiplier", MULTIPLIER),
    (
        "restart-strategy.exponential-delay.reset-backoff-threshold",
        "reset_backoff_threshold_ms",
        POSITIVE_DURATION,
    ),
    ("restart-strategy.exponential-delay.jitter-factor", "jitter_factor", FRACTION),
    (
        "restart-strategy.exponential-delay.attempts-before-reset-backoff",
        "attempts_before_reset_backoff",
        COUNT,
    ),
)


def _creation_retry() -> RestartStrategyOptions:
    return RestartStrategyOptions(attempts_before_reset_backoff=10)


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Every option of a job. Times are milliseconds; `FOREVER_MS` only where it says so.

    ``submission_wait_ms`` and ``submission_stabilization_ms`` hold for every wait for slots, after a failover too.
    ``max_delay_ms`` bounds the wait for a committed micro-batch before a restart for a rescale.
    For BATCH jobs: ``decider``, ``volume_bytes`` (about how much each task should read), and ``auto_min`` to
    ``auto_max``, within which every decision lies as far as the bounds of the vertex allow; not ``auto_enabled``: no
    decision, each vertex runs at its upper bound. ``auto_source``: the most tasks of a source, 0 for no such limit.
    ``skew_*``: see `skew`.
    ``slots_*``: with which share of the slots the job begins (`app.model.slot_share`).
    ``rollback_watch_ms``: how long a rescale is on trial, 0 for never; ``rollback_min_throughput``: below this fraction
    of the rows per busy second before it, a higher parallelism is taken back, 0 for never.
    ``version_trial_ms``: how long a new version of the job may take to commit its first batch, 0 for no limit.
    ``final_exceptions``, ``recoverable_exceptions``: names of classes that decide whether a failure is tried again;
    ``user_code_attempts``: how often in a row the same error of the user's code may come, 0 for no such limit;
    ``local_timeout_ms``: how long a query may take to commit a batch after it was restarted alone, 0: none is.
    ``batch_timeout_ms`` 0 means never; ``batch_interval_ms`` is the least time between the starts of two
    micro-batches, 0 for none; ``batch_trigger`` available-now: the job ends when it has read what is there.
    ``measure_load``: its driver reports all that it can know of the load.
    ``repartition_max``: the most state partitions that bounds can ask for; ``repartition_timeout_ms`` is how much
    longer than `start_timeout_ms` an attempt may take that redistributes state first; ``cluster_start_ms`` is how much
    longer any may, as the cluster takes its time to bring executors: no option, it follows from the server's settings.
    """

    scheduler: str = "Adaptive"
    submission_wait_ms: int = 300_000
    submission_stabilization_ms: int = 10_000
    executing_cooldown_ms: int = 30_000
    executing_stabilization_ms: int = 60_000
    max_checkpoint_failures: int = 2
    max_delay_ms: int = 3 * BATCH_INTERVAL_MS
    prefer_minimal_taskmanagers: bool = True
    slot_idle_timeout_ms: int = 50_000
    rescale_history_size: int = 1_000
    exception_history_size: int = 16
    in_place_cooldown_ms: int = 0
    in_place_stabilization_ms: int = 100
    in_place_max_delay_ms: int = 0
    start_timeout_ms: int = 120_000
    cluster_start_ms: int = 0
    stop_timeout_ms: int = 30_000
    batch_timeout_ms: int = 0
    batch_interval_ms: int = 0
    batch_trigger: str = "processing-time"
    measure_load: bool = True
    apply_timeout_ms: int = 60_000
    slots_weight: int = 1
    slots_priority: int = 0
    slots_cap: int | None = None
    repartition_enabled: bool = True
    repartition_max: int = 128
    repartition_timeout_ms: int = 1_800_000
    rollback_watch_ms: int = 60_000
    rollback_min_throughput: float = 0.5
    version_trial_ms: int = 600_000
    final_exceptions: tuple[str, ...] = ()
    recoverable_exceptions: tuple[str, ...] = ()
    user_code_attempts: int = 3
    local_timeout_ms: int = 60_000
    mode: str = "none"
    decider: str = DeciderRule.FLIP_187.value
    volume_bytes: int = 16 * 1024 * 1024
    auto_enabled: bool = True
    auto_min: int = 1
    auto_max: int = 128
    auto_source: int = 0
    skew_strategy: str = SkewStrategy.AUTO.value
    skew_factor: float = Skew().factor
    skew_threshold_bytes: int = Skew().threshold_bytes
    restart_strategy: RestartStrategyOptions = field(default_factory=RestartStrategyOptions)
    creation_retry: RestartStrategyOptions = field(default_factory=_creation_retry)

    @classmethod
    def parse(cls, mapping: Mapping[str, object]) -> tuple[JobOptions, list[str]]:
        """The options in ``mapping`` over the defaults, and a sentence for each error.

        Keys that belong to Spark or to Flink's autoscaler are passed over. The result may be used only when there
        is no error; an option with an error keeps its default in it.
        """
        values: dict[tuple[str, str], object] = {}
        errors: list[str] = []
        for name, raw in mapping.items():
            if name.startswith(("spark.", AUTOSCALER)):
                continue
            known = _OPTIONS.get(name)
            if known is None:
                errors.append(_unknown(name))
                continue
            part, attribute, kind = known
            try:
                values[part, attribute] = kind.parse(raw)
            except InvalidValue as error:
                errors.append(f"Option {name}: {error}")
        options = cls._build(values)
        errors.extend(_conflicts(options.restart_strategy, ""))
        errors.extend(_conflicts(options.creation_retry, _CREATION))
        if both := [one for one in options.final_exceptions if one in options.recoverable_exceptions]:
            errors.append(
                f"Options {FINAL_EXCEPTIONS} and {RECOVERABLE_EXCEPTIONS} both name {both[0]}: it can only be one of "
                "the two."
            )
        if options.auto_min > options.auto_max:
            errors.append(
                f"Option {_AUTO}min-parallelism ({options.auto_min}) must not be higher than {_AUTO}max-parallelism "
                f"({options.auto_max})."
            )
        return options, errors

    @classmethod
    def from_config(cls, config: Iterable[tuple[str, str]]) -> tuple[JobOptions, list[str]]:
        """`parse` for the ``config`` of a job graph."""
        return cls.parse(dict(config))

    @classmethod
    def _build(cls, values: Mapping[tuple[str, str], object]) -> JobOptions:
        own: dict[str, object] = {name: value for (part, name), value in values.items() if part == "job"}
        for part, default in (
            ("restart_strategy", RestartStrategyOptions()),
            ("creation_retry", _creation_retry()),
        ):
            changed = {name: value for (where, name), value in values.items() if where == part}
            current = {item.name: getattr(default, item.name) for item in fields(RestartStrategyOptions)}
            own[part] = RestartStrategyOptions(**{**current, **changed})
        if "max_checkpoint_failures" in own and "max_delay_ms" not in own:
            failures = own["max_checkpoint_failures"]
            assert isinstance(failures, int)
            own["max_delay_ms"] = (failures + 1) * BATCH_INTERVAL_MS
        if own.get("mode") == REACTIVE:
            own = {"submission_wait_ms": FOREVER_MS, "submission_stabilization_ms": 0, **own}
        return cls(**own)  # type: ignore[arg-type]

    @property
    def is_reactive(self) -> bool:
        """Whether the job follows whatever slots there are (FLIP-159): nobody declares bounds for it."""
        return self.mode == REACTIVE

    @property
    def skew(self) -> Skew:
        """When a subpartition counts as skewed, and what becomes of it (BATCH)."""
        return Skew(SkewStrategy(self.skew_strategy), self.skew_factor, self.skew_threshold_bytes)

    def as_mapping(self) -> dict[str, str]:
        """Every option with its value in force, as text; `parse` of it gives an equal value back."""
        result: dict[str, str] = {}
        for name, (part, attribute, kind) in _OPTIONS.items():
            holder: object = self if part == "job" else getattr(self, part)
            result[name] = kind.format(getattr(holder, attribute))
        return result


_JOB_OPTIONS: Final[tuple[tuple[str, str, Kind], ...]] = (
    ("jobmanager.scheduler", "scheduler", SCHEDULER),
    ("scheduler-mode", "mode", MODE),
    (_SCHEDULER + "submission.resource-wait-timeout", "submission_wait_ms", DURATION_OR_FOREVER),
    (_SCHEDULER + "submission.resource-stabilization-timeout", "submission_stabilization_ms", DURATION),
    (_SCHEDULER + "executing.cooldown-after-rescaling", "executing_cooldown_ms", DURATION),
    (_SCHEDULER + "executing.resource-stabilization-timeout", "executing_stabilization_ms", DURATION),
    (_SCHEDULER + "rescale-trigger.max-checkpoint-failures", "max_checkpoint_failures", POSITIVE_COUNT),
    (_SCHEDULER + "rescale-trigger.max-delay", "max_delay_ms", DURATION),
    (_SCHEDULER + "prefer-minimal-taskmanagers", "prefer_minimal_taskmanagers", BOOLEAN),
    ("slot.idle.timeout", "slot_idle_timeout_ms", DURATION),
    ("web.adaptive-scheduler.rescale-history.size", "rescale_history_size", COUNT),
    ("web.exception-history-size", "exception_history_size", POSITIVE_COUNT),
    ("slotwise.in-place.cooldown", "in_place_cooldown_ms", DURATION),
    ("slotwise.in-place.resource-stabilization-timeout", "in_place_stabilization_ms", DURATION),
    ("slotwise.in-place.max-delay", "in_place_max_delay_ms", DURATION),
    ("slotwise.driver.start-timeout", "start_timeout_ms", POSITIVE_DURATION),
    ("slotwise.driver.stop-timeout", "stop_timeout_ms", POSITIVE_DURATION),
    ("slotwise.batch.timeout", "batch_timeout_ms", DURATION),
    ("slotwise.batch.interval", "batch_interval_ms", DURATION),
    ("slotwise.batch.trigger", "batch_trigger", TRIGGER),
    ("slotwise.metrics.load", "measure_load", BOOLEAN),
    ("slotwise.rescale.apply-timeout", "apply_timeout_ms", POSITIVE_DURATION),
    ("slotwise.slots.weight", "slots_weight", WEIGHT),
    ("slotwise.slots.priority", "slots_priority", PRIORITY),
    ("slotwise.slots.cap", "slots_cap", CAP),
    ("slotwise.state.repartition.enabled", "repartition_enabled", BOOLEAN),
    ("slotwise.state.repartition.max-partitions", "repartition_max", POSITIVE_COUNT),
    ("slotwise.state.repartition.timeout", "repartition_timeout_ms", POSITIVE_DURATION),
    ("slotwise.rollback.watch-period", "rollback_watch_ms", DURATION),
    ("slotwise.rollback.min-throughput", "rollback_min_throughput", FRACTION),
    ("slotwise.version.trial-period", "version_trial_ms", DURATION),
    (FINAL_EXCEPTIONS, "final_exceptions", CLASS_NAMES),
    (RECOVERABLE_EXCEPTIONS, "recoverable_exceptions", CLASS_NAMES),
    (USER_CODE_ATTEMPTS, "user_code_attempts", COUNT),
    (LOCAL_TIMEOUT, "local_timeout_ms", DURATION),
    ("slotwise.batch.parallelism-decider", "decider", DECIDER),
    (_AUTO + "enabled", "auto_enabled", BOOLEAN),
    (_AUTO + "min-parallelism", "auto_min", POSITIVE_COUNT),
    (_AUTO + "max-parallelism", "auto_max", POSITIVE_COUNT),
    (_AUTO + "avg-data-volume-per-task", "volume_bytes", POSITIVE_SIZE),
    (_AUTO + "default-source-parallelism", "auto_source", COUNT),
    (_SKEW + "strategy", "skew_strategy", SKEW_STRATEGY),
    (_SKEW + "skewed-factor", "skew_factor", MULTIPLIER),
    (_SKEW + "skewed-threshold", "skew_threshold_bytes", POSITIVE_SIZE),
)

_OPTIONS: Final[dict[str, tuple[str, str, Kind]]] = {
    **{name: ("job", attribute, kind) for name, attribute, kind in _JOB_OPTIONS},
    **{name: ("restart_strategy", attribute, kind) for name, attribute, kind in _STRATEGY_OPTIONS},
    **{_CREATION + name: ("creation_retry", attribute, kind) for name, attribute, kind in _STRATEGY_OPTIONS},
}

_RENAMED: Final[dict[str, str]] = {
    _SCHEDULER + "resource-wait-timeout": _SCHEDULER + "submission.resource-wait-timeout",
    _SCHEDULER + "resource-stabilization-timeout": _SCHEDULER + "submission.resource-stabilization-timeout",
    _SCHEDULER + "scaling-interval.min": _SCHEDULER + "executing.cooldown-after-rescaling",
    _SCHEDULER + "scaling-interval.max": _SCHEDULER + "executing.resource-stabilization-timeout",
    _SCHEDULER + "scale-on-failed-checkpoints-count": _SCHEDULER + "rescale-trigger.max-checkpoint-failures",
    _SCHEDULER + "max-delay-for-scale-trigger": _SCHEDULER + "rescale-trigger.max-delay",
    "restart-strategy": "restart-strategy.type",
}

_GONE: Final[dict[str, str]] = {
    _SCHEDULER + "min-parallelism-increase": "any difference in parallelism is a reason to rescale",
    "slot.request.timeout": "the wait for slots is " + _SCHEDULER + "submission.resource-wait-timeout",
}


def option_names() -> tuple[str, ...]:
    """The names of all options, in documentation order."""
    return tuple(_OPTIONS)


def _unknown(name: str) -> str:
    if name in _RENAMED:
        return f"Option {name} is outdated: use {_RENAMED[name]}."
    if name in _GONE:
        return f"Option {name} does not exist here: {_GONE[name]}."
    close = difflib.get_close_matches(name, _OPTIONS, n=1)
    hint = f" Did you mean {close[0]}?" if close else " Spark settings start with 'spark.'."
    return f"Option {name} is unknown.{hint}"


def _conflicts(strategy: RestartStrategyOptions, prefix: str) -> list[str]:
    if strategy.max_backoff_ms >= strategy.initial_backoff_ms:
        return []
    name = prefix + "restart-strategy.exponential-delay"
    sentence = (
        f"Option {name}.max-backoff ({strategy.max_backoff_ms} ms) must not be shorter than "
        f"{name}.initial-backoff ({strategy.initial_backoff_ms} ms)."
    )
    return [sentence]

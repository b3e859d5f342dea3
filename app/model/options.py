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
* ``submission.resource-stabilization-timeout``: production Flink waits 10 s, because growing later is a restart there.
  Here it is none where slots are added in place, so a start waits for none that may never come
  (`app.scheduler.adaptive.resources.stabilization_ms`).
* ``restart-strategy.*``: where none is set, a job whose driver was killed once restarts without the initial delay.
* ``slotwise.in-place.*``: a rescale in place stops nothing, so by default nothing dampens it, but for a tenth of a
  second in which slots that are free can come: bounds that want more of them then lead to one rescale, not to two.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from app.model.batch import DeciderRule, Skew, SkewStrategy
from app.model.jobgraph import JobType
from app.model.option_values import (
    AUTOSCALER,
    BOOLEAN,
    BOOLEAN_OR_BY_SINK,
    CAP,
    CLASS_NAMES,
    COUNT,
    DECIDER,
    DURATION,
    DURATION_OR_FOREVER,
    FINAL_EXCEPTIONS,
    FRACTION,
    LOCAL_TIMEOUT,
    MAX_COUNT,
    MODE,
    MULTIPLIER,
    POSITIVE_COUNT,
    POSITIVE_DURATION,
    PRIORITY,
    RECOVERABLE_EXCEPTIONS,
    SCHEDULER,
    SIZE,
    SKEW_STRATEGY,
    STRATEGY,
    TRIGGER,
    USER_CODE_ATTEMPTS,
    WEIGHT,
    InvalidValue,
    Parser,
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


def _options(prefix: str) -> Callable[[str, Parser, Any], Any]:
    """Makes fields: each is set by the option whose name begins with ``prefix``, and has a parser and a default."""

    def option(name: str, parse: Parser, default: Any) -> Any:
        return field(default=default, metadata={"option": prefix + name, "parse": parse})

    return option


_option = _options("")
_scheduler = _options(_SCHEDULER)
_slotwise = _options("slotwise.")
_auto = _options(_AUTO)
_skew = _options(_SKEW)
_fixed = _options("restart-strategy.fixed-delay.")
_rate = _options("restart-strategy.failure-rate.")
_exponential = _options("restart-strategy.exponential-delay.")


@dataclass(frozen=True, slots=True)
class RestartStrategyOptions:
    """One restart strategy: its type and the options of every type (those of the others are not used). ``is_set``: the
    job says something of it."""

    type: str = _option("restart-strategy.type", STRATEGY, "exponential-delay")
    fixed_attempts: int = _fixed("attempts", COUNT, 1)
    fixed_delay_ms: int = _fixed("delay", DURATION, 1_000)
    max_failures_per_interval: int = _rate("max-failures-per-interval", POSITIVE_COUNT, 1)
    failure_rate_interval_ms: int = _rate("failure-rate-interval", POSITIVE_DURATION, 60_000)
    failure_rate_delay_ms: int = _rate("delay", DURATION, 1_000)
    initial_backoff_ms: int = _exponential("initial-backoff", POSITIVE_DURATION, 1_000)
    max_backoff_ms: int = _exponential("max-backoff", POSITIVE_DURATION, 60_000)
    backoff_multiplier: float = _exponential("backoff-multiplier", MULTIPLIER, 1.5)
    reset_backoff_threshold_ms: int = _exponential("reset-backoff-threshold", POSITIVE_DURATION, 3_600_000)
    jitter_factor: float = _exponential("jitter-factor", FRACTION, 0.1)
    attempts_before_reset_backoff: int = _exponential("attempts-before-reset-backoff", COUNT, MAX_COUNT)
    is_set: bool = False


def _creation_retry() -> RestartStrategyOptions:
    return RestartStrategyOptions(attempts_before_reset_backoff=10)


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Every option of a job. Times are milliseconds; `FOREVER_MS` only where it says so.

    ``submission_wait_ms``: how long a start, also that after a failover, waits for the slots of the lower bounds before
    it fails; ``submission_stabilization_ms``: how long it then waits for those of the upper bounds, None if that is
    left to the scheduler.
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
    ``batch_target_ms``: how long a micro-batch of a job that falls behind should take, 0 for no matter how long; None:
    10 s, but not for queries with a watermark or a join of two streams.
    ``batch_interruptible``: whether a micro-batch may be interrupted and run again for a rescale that has waited for it
    ``rescale_max_wait_ms``, 0 for never; None: that depends on the sink.
    ``source_spread``: whether the rows of a source with fewer parts than tasks may be spread; None: that depends on
    the sink.
    ``measure_load``: its driver reports all that it can know of the load.
    ``repartition_max``: the most state partitions that bounds can ask for; ``repartition_timeout_ms`` is how much
    longer than `start_timeout_ms` an attempt may take that redistributes state first; ``cluster_start_ms`` is how much
    longer any may, as the cluster takes its time to bring executors: no option, it follows from the server's settings.
    """

    scheduler: str = _option("jobmanager.scheduler", SCHEDULER, "Adaptive")
    mode: str = _option("scheduler-mode", MODE, "none")
    submission_wait_ms: int = _scheduler("submission.resource-wait-timeout", DURATION_OR_FOREVER, 300_000)
    submission_stabilization_ms: int | None = _scheduler(
        "submission.resource-stabilization-timeout", DURATION, None
    )
    executing_cooldown_ms: int = _scheduler("executing.cooldown-after-rescaling", DURATION, 30_000)
    executing_stabilization_ms: int = _scheduler("executing.resource-stabilization-timeout", DURATION, 60_000)
    max_checkpoint_failures: int = _scheduler("rescale-trigger.max-checkpoint-failures", POSITIVE_COUNT, 2)
    max_delay_ms: int = _scheduler("rescale-trigger.max-delay", DURATION, 3 * BATCH_INTERVAL_MS)
    prefer_minimal_taskmanagers: bool = _scheduler("prefer-minimal-taskmanagers", BOOLEAN, True)
    slot_idle_timeout_ms: int = _option("slot.idle.timeout", DURATION, 50_000)
    rescale_history_size: int = _option("web.adaptive-scheduler.rescale-history.size", COUNT, 1_000)
    exception_history_size: int = _option("web.exception-history-size", POSITIVE_COUNT, 16)
    in_place_cooldown_ms: int = _slotwise("in-place.cooldown", DURATION, 0)
    in_place_stabilization_ms: int = _slotwise("in-place.resource-stabilization-timeout", DURATION, 100)
    in_place_max_delay_ms: int = _slotwise("in-place.max-delay", DURATION, 0)
    start_timeout_ms: int = _slotwise("driver.start-timeout", POSITIVE_DURATION, 120_000)
    cluster_start_ms: int = 0
    stop_timeout_ms: int = _slotwise("driver.stop-timeout", POSITIVE_DURATION, 30_000)
    batch_timeout_ms: int = _slotwise("batch.timeout", DURATION, 0)
    batch_interval_ms: int = _slotwise("batch.interval", DURATION, 0)
    batch_target_ms: int | None = _slotwise("batch.target", DURATION, None)
    batch_interruptible: bool | None = _slotwise("batch.interruptible", BOOLEAN_OR_BY_SINK, None)
    batch_trigger: str = _slotwise("batch.trigger", TRIGGER, "processing-time")
    source_spread: bool | None = _slotwise("source.spread", BOOLEAN_OR_BY_SINK, None)
    measure_load: bool = _slotwise("metrics.load", BOOLEAN, True)
    apply_timeout_ms: int = _slotwise("rescale.apply-timeout", POSITIVE_DURATION, 60_000)
    rescale_max_wait_ms: int = _slotwise("rescale.max-wait", DURATION, 30_000)
    slots_weight: int = _slotwise("slots.weight", WEIGHT, 1)
    slots_priority: int = _slotwise("slots.priority", PRIORITY, 0)
    slots_cap: int | None = _slotwise("slots.cap", CAP, None)
    repartition_enabled: bool = _slotwise("state.repartition.enabled", BOOLEAN, True)
    repartition_max: int = _slotwise("state.repartition.max-partitions", POSITIVE_COUNT, 128)
    repartition_timeout_ms: int = _slotwise("state.repartition.timeout", POSITIVE_DURATION, 1_800_000)
    rollback_watch_ms: int = _slotwise("rollback.watch-period", DURATION, 60_000)
    rollback_min_throughput: float = _slotwise("rollback.min-throughput", FRACTION, 0.5)
    version_trial_ms: int = _slotwise("version.trial-period", DURATION, 600_000)
    final_exceptions: tuple[str, ...] = _option(FINAL_EXCEPTIONS, CLASS_NAMES, ())
    recoverable_exceptions: tuple[str, ...] = _option(RECOVERABLE_EXCEPTIONS, CLASS_NAMES, ())
    user_code_attempts: int = _option(USER_CODE_ATTEMPTS, COUNT, 3)
    local_timeout_ms: int = _option(LOCAL_TIMEOUT, DURATION, 60_000)
    decider: str = _slotwise("batch.parallelism-decider", DECIDER, DeciderRule.FLIP_187.value)
    auto_enabled: bool = _auto("enabled", BOOLEAN, True)
    auto_min: int = _auto("min-parallelism", POSITIVE_COUNT, 1)
    auto_max: int = _auto("max-parallelism", POSITIVE_COUNT, 128)
    volume_bytes: int = _auto("avg-data-volume-per-task", SIZE, 16 * 1024 * 1024)
    auto_source: int = _auto("default-source-parallelism", COUNT, 0)
    skew_strategy: str = _skew("strategy", SKEW_STRATEGY, SkewStrategy.AUTO.value)
    skew_factor: float = _skew("skewed-factor", MULTIPLIER, Skew().factor)
    skew_threshold_bytes: int = _skew("skewed-threshold", SIZE, Skew().threshold_bytes)
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
            known = OPTIONS.get(name)
            if known is None:
                errors.append(_unknown(name))
                continue
            part, attribute, parse = known
            try:
                values[part, attribute] = parse(raw)
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
            changed: dict[str, Any] = {
                name: value for (where, name), value in values.items() if where == part
            }
            own[part] = replace(default, **changed, is_set=bool(changed))
        if "max_checkpoint_failures" in own and "max_delay_ms" not in own:
            failures = own["max_checkpoint_failures"]
            assert isinstance(failures, int)
            own["max_delay_ms"] = (failures + 1) * BATCH_INTERVAL_MS
        if own.get("mode") == REACTIVE:
            own = {"submission_wait_ms": FOREVER_MS, "submission_stabilization_ms": 0, **own}
        return cls(**own)  # type: ignore[arg-type]

    @property
    def is_reactive(self) -> bool:
        """Whether the job uses all available slots (FLIP-159); its bounds cannot be declared."""
        return self.mode == REACTIVE

    @property
    def skew(self) -> Skew:
        """When a subpartition counts as skewed, and what becomes of it (BATCH)."""
        return Skew(SkewStrategy(self.skew_strategy), self.skew_factor, self.skew_threshold_bytes)


def _set_by(part: str, holder: type, prefix: str = "") -> dict[str, tuple[str, str, Parser]]:
    return {
        prefix + each.metadata["option"]: (part, each.name, each.metadata["parse"])
        for each in fields(holder)
        if each.metadata
    }


OPTIONS: Final = {
    **_set_by("job", JobOptions),
    **_set_by("restart_strategy", RestartStrategyOptions),
    **_set_by("creation_retry", RestartStrategyOptions, _CREATION),
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


_STREAMING_ONLY: Final = frozenset(
    name
    for name in OPTIONS
    if name.startswith(
        (
            "slotwise.in-place.",
            "slotwise.state.",
            "slotwise.rollback.",
            "slotwise.version.",
            _SCHEDULER + "executing.",
            _SCHEDULER + "rescale-trigger.",
        )
    )
) | {
    "scheduler-mode",
    _SCHEDULER + "submission.resource-stabilization-timeout",
    "slotwise.batch.timeout",
    "slotwise.batch.interval",
    "slotwise.batch.target",
    "slotwise.batch.interruptible",
    "slotwise.batch.trigger",
    "slotwise.metrics.load",
    "slotwise.rescale.apply-timeout",
    "slotwise.rescale.max-wait",
    "slotwise.source.spread",
    LOCAL_TIMEOUT,
}
_BATCH_ONLY: Final = frozenset(
    name
    for name in OPTIONS
    if name.startswith((_AUTO, _SKEW)) or name == "slotwise.batch.parallelism-decider"
)


_OF_BATCH_PROGRAMS: Final = frozenset(
    name
    for name in _STREAMING_ONLY
    if name.startswith(("slotwise.in-place.", _SCHEDULER + "executing.", _SCHEDULER + "rescale-trigger."))
) | {"slotwise.rescale.apply-timeout"}
"""They say when a job is rescaled that runs; a BATCH program is, while the regions of a BATCH graph are not."""


def options_of_the_other_type(
    mapping: Mapping[str, object], job_type: JobType, *, program: bool = False
) -> list[str]:
    """A sentence for each option that means nothing to a job of ``job_type``, or to a ``program`` of it."""
    if program and job_type is JobType.BATCH:
        return [
            f"Option {name} is not for BATCH programs: they have neither regions nor micro-batches."
            for name in mapping
            if name in (_STREAMING_ONLY | _BATCH_ONLY) - _OF_BATCH_PROGRAMS
        ]
    other = JobType.STREAMING if job_type is JobType.BATCH else JobType.BATCH
    foreign = _STREAMING_ONLY if job_type is JobType.BATCH else _BATCH_ONLY
    return [
        f"Option {name} is for {other} jobs: a {job_type} job has no use for it."
        for name in mapping
        if name in foreign
    ]


def _unknown(name: str) -> str:
    if name in _RENAMED:
        return f"Option {name} is outdated: use {_RENAMED[name]}."
    if name in _GONE:
        return f"Option {name} does not exist here: {_GONE[name]}."
    close = difflib.get_close_matches(name, OPTIONS, n=1)
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

"""The decision for one vertex, with everything that led to it, when its region starts."""

from __future__ import annotations

from dataclasses import asdict
from math import ceil
from typing import Any

from app.model.batch import DeciderRule, LimitedBy
from app.model.job_state.batch import Decision
from app.model.jobgraph import JobVertex
from app.model.requirements import Bounds
from app.scheduler.adaptive.state import JobState
from app.scheduler.batch.limits import Limits, limits
from app.scheduler.batch.parallelism_decider import Inputs, decide
from app.scheduler.batch.source_sizes import source_limit


def decision_for(
    state: JobState,
    vertex: JobVertex,
    bounds: Bounds,
    inputs: Inputs,
    source_bytes: int | None,
    *,
    region: int,
    run: int,
    now_ms: int,
) -> Decision:
    """``inputs`` are the finished ones from other regions, ``source_bytes`` what a source reads if that is known."""
    within = limits(bounds, state.options)
    if inputs.all:
        rule, figures = state.options.decider, _by_inputs(state, inputs, within)
    elif vertex.is_source:
        rule, figures = "source", _by_files(state, source_bytes, within)
    else:
        # Within a region Spark divides the rows by what it sees while it runs; this is its limit.
        rule, figures = "pipelined", _found(within, bounds.upper, within.highest)
    if rule != "pipelined" and bounds.lower == bounds.upper:
        rule = "fixed"
    return Decision(
        vertex_id=vertex.id,
        region=region,
        run=run,
        at_ms=now_ms,
        rule=rule,
        lower=bounds.lower,
        upper=bounds.upper,
        volume_bytes=state.options.volume_bytes,
        **figures,
    )


def _by_inputs(state: JobState, inputs: Inputs, within: Limits) -> dict[str, Any]:
    division = decide(
        inputs,
        DeciderRule(state.options.decider),
        volume_bytes=state.options.volume_bytes,
        limits=within,
        skew=state.options.skew,
    )
    return {
        **asdict(division),
        "bytes": inputs.divided_bytes,
        "rows": sum(result.total_rows for result in inputs.all),
        "broadcast_bytes": inputs.broadcast_bytes,
        "subpartitions": inputs.subpartitions[0] if inputs.subpartitions else None,
    }


def _by_files(state: JobState, size: int | None, within: Limits) -> dict[str, Any]:
    most = source_limit(size, state.usable_slots)
    if state.options.auto_source:
        within = within.at_most(state.options.auto_source, LimitedBy.OPTIONS)
    elif most is not None:
        within = within.at_most(most, LimitedBy.SLOTS)
    if size is None:
        return _found(within, within.bounds.upper, within.highest)
    wanted = max(1, ceil(size / state.options.volume_bytes))
    found = _found(within, Limits.of(within.bounds).clamp(wanted), within.clamp(wanted))
    return {**found, "wanted": wanted, "bytes": size}


def _found(within: Limits, unlimited: int, parallelism: int) -> dict[str, Any]:
    limit, by = within.effect(unlimited, parallelism)
    return {"parallelism": parallelism, "limit": limit, "limited_by": by}

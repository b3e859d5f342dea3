"""What follows from the state of a job for what is around it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

from app.model.environment import Runtime
from app.model.javaoptions import JAVA_OPTION_SETTINGS, MEMORY_SETTING, split_java_options
from app.scheduler.adaptive.state import JobState


def may_give_otherwise(before: JobState, after: JobState) -> bool:
    """Whether what the job can give back of its slots may be other than before."""
    return (
        after.attempt_alive != before.attempt_alive
        or after.plan is not before.plan
        or after.requirements is not before.requirements
        or after.phase_version != before.phase_version
        or after.plan_version != before.plan_version
    )


def java_options(state: JobState) -> tuple[str, ...]:
    """See `jvm_options`."""
    return jvm_options(state.graph.config)


def jvm_options(config: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Settings of a job that only a new JVM can take; a job that has any never gets a warm driver."""
    options: list[str] = []
    for key, value in config:
        if key == MEMORY_SETTING:
            options.append(f"-Xmx{value}")
        elif key in JAVA_OPTION_SETTINGS:
            options.extend(split_java_options(value))
    return tuple(options)


def runtime_of(said: Runtime, artifacts_dir: Path) -> Runtime | None:
    """What a job is to run in, as its document has ``said``; None: in the environment of the server."""
    return dataclasses.replace(said, artifacts_dir=str(artifacts_dir)) if said.is_own else None

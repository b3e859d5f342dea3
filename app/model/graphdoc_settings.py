"""The rules of the settings of a job graph or a program: of its config, and of what it runs in."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from app.model.environment import Runtime, path_fault
from app.model.grapherrors import Errors, below
from app.model.javaoptions import (
    EXECUTOR_OPTION_SETTINGS,
    JAVA_OPTION_SETTINGS,
    MEMORY_SETTING,
    executor_options_fault,
    java_options_fault,
    memory_fault,
)
from app.model.jobgraph import MAX_PARALLELISM_LIMIT, MAX_SETTINGS_CHARS, JobType
from app.model.options import JobOptions, options_of_the_other_type
from app.model.ownsettings import SHUFFLE_PARTITIONS, refused_setting, task_failures_fault
from app.model.sentences import shown
from app.model.sparkui import ui_fault

MAX_ARTIFACTS: Final = 100
MAX_BOUNDS: Final = 200
"""Of so many vertices a document says what their bounds are."""

_WHOLE = re.compile(r"[0-9]{1,9}\Z")
_NOT_FOR_PROGRAMS: Final = {
    "slotwise.batch.interval": "a program says itself how often its queries run, with trigger(processingTime=...)",
    "slotwise.batch.trigger": "a program says itself when its queries end, with trigger(availableNow=True)",
}

Pairs = tuple[tuple[str, str], ...]


def check_archive(errors: Errors, runtime: Runtime, artifacts: Collection[str]) -> None:
    """The archive of an environment is a path, or one of the artifacts."""
    archive = None if runtime.environment is None else runtime.environment.archive
    if archive is not None and archive not in artifacts and (fault := path_fault(archive)):
        errors.add("environment.archive", f"{fault}, or one of the artifacts.")


def check_config(errors: Errors, config: Pairs, job_type: JobType, *, program: bool = False) -> None:
    """The settings and options of a job graph, or of a program."""
    batch = job_type is JobType.BATCH
    for name, value in config:
        if program and name == SHUFFLE_PARTITIONS:
            if not _WHOLE.match(value) or not 1 <= int(value) <= MAX_PARALLELISM_LIMIT:
                what = "partitions behind a shuffle" if batch else "state partitions of a new checkpoint"
                errors.add(
                    below("config", name),
                    f"should be the number of {what}, a whole number between 1 and {MAX_PARALLELISM_LIMIT}, found "
                    f"{shown(value)}.",
                )
        elif refusal := refused_setting(name, value, batch=batch, program=program):
            errors.add("config", f"The setting {name} is not allowed: {refusal}.")
        elif fault := _jvm_fault(name, value) or ui_fault(name, value) or task_failures_fault(name, value):
            errors.add(below("config", name), fault)
    _, sentences = JobOptions.from_config(config)
    sentences += options_of_the_other_type(dict(config), job_type, program=program)
    sentences += [
        f"Option {name} is not for programs: {why}."
        for name, _ in config
        for prefix, why in _NOT_FOR_PROGRAMS.items()
        if program and name.startswith(prefix)
    ]
    for sentence in sentences:
        errors.add("config", sentence)


def check_size(errors: Errors, settings: Iterable[Pairs], runtime: Runtime, args: Iterable[str] = ()) -> None:
    """Each view of the settings is searched for secrets, so there is a limit to all of them together."""
    requirements = () if runtime.environment is None else runtime.environment.requirements
    texts = [*args, *runtime.packages, *requirements]
    size = sum(len("".join(pair)) for pairs in (*settings, runtime.variables) for pair in pairs)
    size += sum(map(len, texts))
    if size > MAX_SETTINGS_CHARS:
        errors.add(
            "config",
            "The settings of config, the options of the vertices, the args and the environmentVariables have "
            f"{size} characters together: at most {MAX_SETTINGS_CHARS} are allowed.",
        )


def _jvm_fault(name: str, value: str) -> str | None:
    """What is wrong with a setting that only a new JVM can take."""
    if name == MEMORY_SETTING:
        return memory_fault(value)
    if name in EXECUTOR_OPTION_SETTINGS:
        return executor_options_fault(value)
    return java_options_fault(value) if name in JAVA_OPTION_SETTINGS else None

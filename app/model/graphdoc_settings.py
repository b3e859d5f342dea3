"""Reading the fields that job graphs and programs share: artifacts, config, the script and its arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from app.model.environment import (
    MAX_PACKAGES,
    MAX_REQUIREMENTS,
    EnvironmentSpec,
    Runtime,
    package_fault,
    path_fault,
    requirement_fault,
)
from app.model.graphdoc_fields import Errors, Fields, below, text_fault
from app.model.javaoptions import (
    EXECUTOR_OPTION_SETTINGS,
    JAVA_OPTION_SETTINGS,
    MEMORY_SETTING,
    executor_options_fault,
    java_options_fault,
    memory_fault,
)
from app.model.jobgraph import (
    MAX_PARALLELISM_LIMIT,
    MAX_SETTING_CHARS,
    MAX_SETTINGS_CHARS,
    JobType,
    NamedBounds,
    ProgramSpec,
)
from app.model.locations import plain_location
from app.model.options import JobOptions, options_of_the_other_type
from app.model.ownsettings import SHUFFLE_PARTITIONS, refused_setting, task_failures_fault
from app.model.sentences import kind_of, shown
from app.model.sparkui import ui_fault
from app.model.variables import MAX_VARIABLES, VARIABLES, variable_fault

FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+ -]{0,199}\Z")
MAX_ARTIFACTS: Final = 100
MAX_SETTINGS: Final = 500
MAX_ARGS: Final = 1_000

_FORMS: Final = ("python", "archive", "requirements")
_ENVIRONMENT = "a mapping with one of python, archive, requirements"
_WHOLE = re.compile(r"[0-9]{1,9}\Z")
_NOT_FOR_PROGRAMS: Final = {
    "slotwise.batch.interval": "a program says itself how often its queries run, with trigger(processingTime=...)",
    "slotwise.batch.trigger": "a program says itself when its queries end, with trigger(availableNow=True)",
}

MAX_BOUNDS: Final = 200


def read_bounds(fields: Fields) -> tuple[NamedBounds, ...]:
    """What the document of a program says of bounds, by names of vertices. What is wrong is added to the errors."""
    value = fields.mapping("bounds", "a mapping of vertex names to lowerBound and upperBound") or {}
    if len(value) > MAX_BOUNDS:
        fields.wrong("bounds", f"has {len(value)} entries: at most {MAX_BOUNDS} are allowed.")
        return ()
    found = []
    for name, each in value.items():
        place = below("bounds", name)
        if not isinstance(name, str):
            fields.errors.add(
                "bounds", f"should have names of vertices, found {kind_of(name)}: put it in quotes."
            )
        elif not isinstance(each, Mapping):
            fields.errors.add(
                place, f"should be a mapping with lowerBound and upperBound, found {kind_of(each)}."
            )
        else:
            inner = Fields(fields.errors, place, each, ("lowerBound", "upperBound"), "the bounds of a vertex")
            lower = inner.integer("lowerBound", 1, MAX_PARALLELISM_LIMIT)
            upper = inner.integer("upperBound", 1, MAX_PARALLELISM_LIMIT)
            if lower is not None and upper is not None and lower > upper:
                inner.wrong("lowerBound", f"{lower} is higher than the upperBound {upper}.")
            found.append(NamedBounds(name, lower, upper))
    return tuple(found)


def read_artifacts(fields: Fields) -> tuple[str, ...]:
    """The names of the files that come with the job."""
    found: list[str] = []
    for place, value in fields.elements("artifacts", "a list of file names", MAX_ARTIFACTS):
        name = fields.as_text(place, value, "a file name")
        if name is None:
            continue
        if not FILE_NAME.match(name):
            fields.errors.add(
                place,
                f"should be the name of a file beside the graph, of letters, digits and . _ + - and without "
                f"folders, found {shown(name)}.",
            )
        elif name in found:
            fields.errors.add(place, f"{shown(name)} is listed twice.")
        else:
            found.append(name)
    return tuple(found)


def read_runtime(fields: Fields) -> Runtime:
    """What the job runs in, as far as it can be read."""
    coordinates = "coordinates such as group:artifact:version"
    return Runtime(
        _environment(fields),
        _texts(fields, "packages", MAX_PACKAGES, coordinates, package_fault),
        variables=_variables(fields),
    )


def _variables(fields: Fields) -> tuple[tuple[str, str], ...]:
    found = fields.texts(VARIABLES, "a mapping of names of environment variables to texts", MAX_VARIABLES)
    for name, _ in found:
        if (fault := variable_fault(name)) and not fields.errors.stored:
            fields.errors.add(below(fields.at(VARIABLES), name), fault)
    return found


def _environment(fields: Fields) -> EnvironmentSpec | None:
    """None for that of the server, or if it cannot be read."""
    value = fields.mapping("environment", _ENVIRONMENT)
    if value is None:
        return None
    place = fields.at("environment")
    inner = Fields(fields.errors, place, value, _FORMS, "an environment")
    given = [name for name in _FORMS if name in inner]
    if len(given) != 1:
        found = f"found {' and '.join(given)}" if given else "found none"
        fields.errors.add(place, f"should have exactly one of {', '.join(_FORMS)}, {found}.")
        return None
    if given == ["requirements"]:
        found_ones = _texts(
            inner, "requirements", MAX_REQUIREMENTS, "a requirement such as numpy==2.1.0", requirement_fault
        )
        if not found_ones and not fields.errors:
            fields.errors.add(below(place, "requirements"), "must not be empty: leave environment out.")
        return EnvironmentSpec(requirements=found_ones)
    path = inner.text(given[0], "a path on the host of the server")
    if path is None:
        return None
    artifacts = fields.raw("artifacts")
    is_artifact = given == ["archive"] and isinstance(artifacts, list | tuple) and path in artifacts
    fault = None if is_artifact else path_fault(path)
    if fault is not None:
        also = ", or one of the artifacts" if given == ["archive"] else ""
        inner.wrong(given[0], f"{fault}{also}.")
    return EnvironmentSpec(python=path) if given == ["python"] else EnvironmentSpec(archive=path)


def _texts(
    fields: Fields, name: str, most: int, expected: str, fault_of: Callable[[str], str | None]
) -> tuple[str, ...]:
    found: list[str] = []
    for place, value in fields.elements(name, f"a list of {expected}", most):
        text = fields.as_text(place, value, expected)
        if text is None:
            continue
        if (fault := fault_of(text)) is not None:
            fields.errors.add(place, f"{fault}.")
        fields.errors.settings_chars += len(text)
        found.append(text)
    return tuple(found)


def read_config(fields: Fields, job_type: JobType, *, program: bool = False) -> tuple[tuple[str, str], ...]:
    """The settings and options of a job graph, or of a program."""
    config = fields.texts("config", "a mapping of spark.* settings and scheduler options", MAX_SETTINGS)
    batch = job_type is JobType.BATCH
    for name, value in config:
        if program and name == SHUFFLE_PARTITIONS:
            if not _WHOLE.match(value) or not 1 <= int(value) <= MAX_PARALLELISM_LIMIT:
                what = "partitions behind a shuffle" if batch else "state partitions of a new checkpoint"
                fields.errors.add(
                    below("config", name),
                    f"should be the number of {what}, a whole number between 1 and {MAX_PARALLELISM_LIMIT}, found "
                    f"{shown(value)}.",
                )
            continue
        refusal = refused_setting(name, value, batch=batch, program=program)
        if refusal and not fields.errors.stored:
            fields.errors.add("config", f"The setting {name} is not allowed: {refusal}.")
        elif fault := _jvm_fault(name, value) or (
            not fields.errors.stored and (ui_fault(name, value) or task_failures_fault(name, value))
        ):
            fields.errors.add(below("config", name), fault)
    _, sentences = JobOptions.from_config(config)
    sentences += options_of_the_other_type(dict(config), job_type, program=program)
    if program and not fields.errors.stored:
        sentences += _options_of_graphs(config)
    for sentence in sentences:
        fields.errors.add("config", sentence)
    return config


def _options_of_graphs(config: tuple[tuple[str, str], ...]) -> list[str]:
    """A sentence for each option that means nothing to a program."""
    return [
        f"Option {name} is not for programs: {why}."
        for name, _ in config
        for prefix, why in _NOT_FOR_PROGRAMS.items()
        if name.startswith(prefix)
    ]


def read_program(fields: Fields) -> ProgramSpec | None:
    """The ``script``, its ``args``, and where it goes on from; None if the script cannot be read."""
    script = fields.needed("script", "the file of a program, such as job.py", longest=300)
    args: list[str] = []
    for place, value in fields.elements("args", "a list of texts", MAX_ARGS):
        if isinstance(value, str):
            # A text may be empty here.
            if len(value) > MAX_SETTING_CHARS:
                fields.errors.add(place, f"is too long: at most {MAX_SETTING_CHARS} characters are allowed.")
            elif fault := text_fault(value):
                fields.errors.add(place, fault)
            args.append(value)
        else:
            fields.as_text(place, value, "a text")
    fields.errors.settings_chars += sum(map(len, args))
    if script is None:
        return None
    if not FILE_NAME.match(script) or not script.endswith(".py"):
        fields.wrong(
            "script",
            f"should be the name of a Python file among the artifacts, such as job.py, found {shown(script)}.",
        )
        return None
    return ProgramSpec(script, tuple(args))


def read_origin(fields: Fields, job_type: JobType) -> str | None:
    """The directory of the checkpoints that the queries go on from."""
    if "from" in fields and job_type is JobType.BATCH:
        fields.wrong("from", "is for jobs with streaming queries: a BATCH job has no checkpoint.")
        return None
    origin = fields.text("from", "the directory of a checkpoint on the host of the server")
    if origin is None:
        return None
    plain = plain_location(origin)
    if plain is None or path_fault(plain):
        fields.wrong(
            "from",
            f"should be an absolute path on the host of the server, found {shown(origin)}. A checkpoint on another "
            "file system has to be copied there before.",
        )
        return None
    return plain


def check_size(errors: Errors) -> None:
    """Each view of the settings is searched for secrets, so there is a limit to all of them together."""
    if errors.settings_chars > MAX_SETTINGS_CHARS and not errors.stored:
        errors.add(
            "config",
            "The settings of config, the options of the vertices, the args and the environmentVariables have "
            f"{errors.settings_chars} characters together: at most {MAX_SETTINGS_CHARS} are allowed.",
        )


def _jvm_fault(name: str, value: str) -> str | None:
    """What is wrong with a setting that only a new JVM can take."""
    if name == MEMORY_SETTING:
        return memory_fault(value)
    if name in EXECUTOR_OPTION_SETTINGS:
        return executor_options_fault(value)
    return java_options_fault(value) if name in JAVA_OPTION_SETTINGS else None

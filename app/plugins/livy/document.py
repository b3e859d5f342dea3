"""Conversion of Livy's batches: the program that a body of `POST /batches` asks for, and Livy's words for the
states of jobs. Fields that Slotwise cannot fulfil are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final

from pydantic import BeforeValidator, Field, model_validator

from app.documents.fields import FILE_NAME
from app.documents.form import Expected, Form, Given, Name, Setting, Tasks, read_form
from app.documents.program import parse_program
from app.model.graphdoc_program import ProgramDocument
from app.model.graphdoc_settings import MAX_ARTIFACTS
from app.model.grapherrors import Errors, GraphErrors, below
from app.model.javaoptions import MEMORY_SETTING
from app.model.jobgraph import MAX_PARALLELISM_LIMIT, JobType
from app.model.sentences import kind_of, shown
from app.model.status import JobStatus
from app.model.variables import VARIABLES, variable_fault

_REFUSED: Final = {
    "proxyUser": "jobs run as the user whom the server was set up with",
    "className": "it names a class of a program for the JVM, and a job is a Python program",
    "jars": "list libraries by their coordinates where a program is submitted with packages, or install them in the "
    "pyspark/jars of the server's Python",
    "archives": "submit the program with an environment instead, or send the files one by one under files",
    "queue": "there are no queues of YARN: slots are shared by weight and priority (slotwise.slots.weight and "
    "slotwise.slots.priority in conf)",
    "driverCores": "a driver is not limited to a number of cores",
    "executorMemory": "the server's settings say how much memory an executor has (cluster_executor_memory_mb)",
}
_IN_FIELDS: Final = {
    "spark.executor.instances": "say so by numExecutors, which is the upper bound of the job",
    "spark.executor.cores": "say so by executorCores",
    "spark.executor.memory": _REFUSED["executorMemory"],
    "spark.dynamicAllocation.": "the number of tasks follows the bounds of the job: say by numExecutors how many there "
    "may be",
    "spark.yarn.": "nothing here is YARN's, but for spark.yarn.appMasterEnv.*",
}
"""Settings that Livy's clients use, and that would do nothing."""
_DRIVER_ENV: Final = ("spark.yarn.appMasterEnv.", "spark.kubernetes.driverEnv.")
"""What follows is an environment variable. Those of executors alone, spark.executorEnv.*, are settings of Spark."""
TYPE: Final = "slotwise.job.type"
"""In `conf`, and nowhere else: BATCH, which is the default, or STREAMING."""

_RESTARTS: Final = "restart-strategy"
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_LONGEST_PATH: Final = 1024
_DIGITS: Final = re.compile(r"[0-9]{1,9}\Z")
_PYTHON_FILES: Final = (".py", ".zip", ".whl")
_PLACES: Final = {
    "config": "conf",
    VARIABLES: "conf",
    "script": "file",
    "artifacts": "files",
    "type": below("conf", TYPE),
}
_PLACE: Final = re.compile(rf"({'|'.join(_PLACES)})(?=[\[.:])")


class LivyState(StrEnum):
    """Those of Livy's states that a job can have."""

    STARTING = "starting"
    RUNNING = "running"
    SHUTTING_DOWN = "shutting_down"
    SUCCESS = "success"
    DEAD = "dead"
    KILLED = "killed"


_STATES: Final = {
    JobStatus.RUNNING: LivyState.RUNNING,
    JobStatus.RESTARTING: LivyState.RUNNING,
    JobStatus.FAILING: LivyState.RUNNING,
    JobStatus.CANCELLING: LivyState.SHUTTING_DOWN,
    JobStatus.FINISHED: LivyState.SUCCESS,
    JobStatus.FAILED: LivyState.DEAD,
    JobStatus.CANCELED: LivyState.KILLED,
}


def livy_state(status: JobStatus) -> LivyState:
    return _STATES.get(status, LivyState.STARTING)


@dataclass(frozen=True, slots=True)
class FileAsked:
    """A file of the server's that a batch is to have: which field of the body asks for which path."""

    place: str
    path: str


@dataclass(frozen=True, slots=True)
class LivyBatch:
    """``files``: the program and its other files, by the names that they have among its artifacts."""

    program: ProgramDocument
    files: Mapping[str, FileAsked]


def _path(value: object) -> str:
    path = _local_path(value)
    if path is None:
        what = shown(value) if isinstance(value, str) else kind_of(value)
        raise ValueError(
            "should be a path on the server's host below its setting livy_files_dir, such as jobs/etl.py or "
            f"file:///srv/jobs/etl.py, found {what}."
        )
    return path


def _whole(value: object) -> object:
    """Livy takes numbers as texts too."""
    return int(value) if isinstance(value, str) and _DIGITS.match(value) else value


_Path = Annotated[
    str, BeforeValidator(_path, json_schema_input_type=str), Expected("the path of a Python program")
]
_Paths = Annotated[tuple[_Path, ...], Expected("a list of paths", MAX_ARTIFACTS)]
_Count = Annotated[Tasks, BeforeValidator(_whole, json_schema_input_type=int | str)]


class LivyForm(Form):
    """A batch as Livy's clients submit it. Null is what was left out, as clients of typed languages send it."""

    what = "a Livy batch"
    refused: ClassVar[Mapping[str, str]] = {
        name: f"cannot be had here: {why}." for name, why in _REFUSED.items()
    }
    example: ClassVar[Mapping[str, Any] | None] = {
        "file": "jobs/etl.py",
        "args": ["--day", "2013-01-01"],
        "numExecutors": 4,
        "conf": {"spark.sql.ansi.enabled": "true"},
    }
    file: _Path
    args: Annotated[tuple[Annotated[str, Expected("a text")], ...], Expected("a list of texts")] = ()
    py_files: _Paths = ()
    files: _Paths = ()
    name: Given[Name] = None
    conf: Annotated[dict[str, Any], Expected("a mapping of settings to values")] = Field({})
    driver_memory: Given[Setting] = None
    num_executors: Given[_Count] = None
    executor_cores: Given[_Count] = None

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, body: dict[str, object]) -> dict[str, object]:
        known = {*cls.hints(), *cls.refused}
        return {name: value for name, value in body.items() if value is not None or name not in known}


def parse_livy_batch(body: Mapping[str, object]) -> LivyBatch:
    """What ``body``, as decoded from JSON, asks for.

    Raises:
        GraphErrors: with all errors, each with its place and a sentence.
    """
    form, errors = read_form(LivyForm, body), Errors()
    files = _files(errors, form)
    config = dict(form.conf)
    variables = _variables(errors, config)
    for key in config:
        why = next((each for prefix, each in _IN_FIELDS.items() if key.startswith(prefix)), None)
        if why is not None:
            errors.add(below("conf", key), f"would do nothing: {why}.")
    job_type = config.pop(TYPE, JobType.BATCH.value)
    is_streaming = job_type == JobType.STREAMING
    if not is_streaming and not any(key.startswith(_RESTARTS) for key in config):
        # As Livy does it: who submits decides whether it is tried again.
        config[f"{_RESTARTS}.type"] = "none"
    if form.driver_memory is not None:
        if MEMORY_SETTING in config:
            errors.add("driverMemory", f"is there besides {MEMORY_SETTING} in conf: give one of them.")
        config[MEMORY_SETTING] = form.driver_memory
    most = _most_slots(errors, form, is_streaming=is_streaming)
    script = next(iter(files), "")
    stem = script.removesuffix(".py")
    document = {
        "name": stem if form.name is None else form.name,
        "type": job_type,
        "script": script,
        "args": form.args,
        "artifacts": list(files),
        "config": config,
        **({VARIABLES: variables} if variables else {}),
        "bounds": {stem: {"upperBound": most}} if most else {},
    }
    if errors:
        # What follows from these would be said again in other words.
        raise GraphErrors(errors.texts())
    try:
        return LivyBatch(parse_program(document), files)
    except GraphErrors as error:
        raise GraphErrors([in_words_of_livy(text) for text in error.errors]) from None


def _variables(errors: Errors, config: dict[str, object]) -> dict[str, object]:
    """The environment variables that are in ``config``, which are taken from it."""
    found: dict[str, object] = {}
    for key in [key for key in config if key.startswith(_DRIVER_ENV)]:
        name, value = key.removeprefix(_DRIVER_ENV[0]).removeprefix(_DRIVER_ENV[1]), config.pop(key)
        if fault := variable_fault(name):
            errors.add(below("conf", key), fault)
        elif not isinstance(value, str | int | float):
            errors.add(below("conf", key), f"should be a text, found {kind_of(value)}.")
        elif found.setdefault(name, value) != value:
            errors.add(below("conf", key), f"is there besides another {name}, with another value: give one.")
    return found


def _files(errors: Errors, form: LivyForm) -> dict[str, FileAsked]:
    """By name; the program is the first."""
    found: dict[str, FileAsked] = {}
    asked: list[tuple[str, str, tuple[str, ...]]] = [("file", form.file, (".py",))]
    asked += [(f"pyFiles[{at}]", path, _PYTHON_FILES) for at, path in enumerate(form.py_files)]
    asked += [(f"files[{at}]", path, ("",)) for at, path in enumerate(form.files)]
    for place, path, endings in asked:
        name = path.rpartition("/")[2]
        if not name.endswith(endings):
            errors.add(place, f"should end in {', '.join(endings)}, found {shown(name)}.")
        elif not FILE_NAME.match(name):
            errors.add(place, f"should have a name of letters, digits and . _ + -, found {shown(name)}.")
        elif name in found:
            errors.add(
                place,
                f"has the name {shown(name)}, and so has {found[name].place}: all files of a job are in one directory.",
            )
        else:
            found[name] = FileAsked(place, path)
    return found


def _local_path(value: object) -> str | None:
    """The path that a text names; None if it names something that is elsewhere."""
    if not isinstance(value, str) or not value.strip() or "\0" in value or len(value) > _LONGEST_PATH:
        return None
    match = _SCHEME.match(value)
    if match is None:
        return value
    path = value[match.end() :]
    if match[1].lower() not in ("file", "local") or not path.startswith("/"):
        return None
    # With two slashes a host would follow.
    return "/" + path.lstrip("/") if not path.startswith("//") or path.startswith("///") else None


def _most_slots(errors: Errors, form: LivyForm, *, is_streaming: bool) -> int | None:
    """How many tasks at a time the executors would run that were asked for: the upper bound of the program."""
    executors, cores = form.num_executors, form.executor_cores
    if executors is None:
        if cores is not None:
            errors.add("executorCores", "says how parallel a batch may be only together with numExecutors.")
        return None
    most = executors * (cores or 1)
    if is_streaming:
        errors.add(
            "numExecutors",
            "is for BATCH programs: declare the bounds of each vertex of a STREAMING one when it runs.",
        )
    elif most > MAX_PARALLELISM_LIMIT:
        errors.add(
            "numExecutors",
            f"times executorCores is {most}: at most {MAX_PARALLELISM_LIMIT} tasks can run at a time.",
        )
    return most


def in_words_of_livy(text: str) -> str:
    """An error of a program's document, with its place as Livy's body has it."""
    return _PLACE.sub(lambda match: _PLACES[match[1]], text, count=1) if _PLACE.match(text) else text

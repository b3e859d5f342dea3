"""Conversion of Livy's batches: the program that a body of `POST /batches` asks for, and Livy's words for the
states of jobs. Fields that Slotwise cannot fulfil are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from app.documents.fields import FILE_NAME
from app.documents.program import parse_program
from app.model.graphdoc_program import ProgramDocument
from app.model.graphdoc_settings import MAX_ARTIFACTS
from app.model.grapherrors import Errors, Fields, GraphErrors, below
from app.model.javaoptions import MEMORY_SETTING
from app.model.jobgraph import MAX_PARALLELISM_LIMIT, JobType
from app.model.sentences import kind_of, shown
from app.model.status import JobStatus
from app.model.variables import VARIABLES, variable_fault

FIELDS: Final = (
    "file",
    "args",
    "pyFiles",
    "files",
    "name",
    "conf",
    "driverMemory",
    "numExecutors",
    "executorCores",
)
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


def parse_livy_batch(body: Mapping[str, object]) -> LivyBatch:
    """What ``body``, as decoded from JSON, asks for.

    Raises:
        GraphErrors: with all errors, each with its place and a sentence.
    """
    errors = Errors()
    # Clients of typed languages send null for what they leave out.
    given = {
        name: _whole(name, value)
        for name, value in body.items()
        if value is not None or name not in (*FIELDS, *_REFUSED)
    }
    for name in (each for each in _REFUSED if each in given):
        errors.add(name, f"cannot be had here: {_REFUSED[name]}.")
    fields = Fields(
        errors,
        "",
        {name: value for name, value in given.items() if name not in _REFUSED},
        FIELDS,
        "a Livy batch",
    )
    files = _files(fields)
    config = dict(fields.mapping("conf", "a mapping of settings to values") or {})
    variables = _variables(errors, config)
    for key in config:
        why = next((each for prefix, each in _IN_FIELDS.items() if str(key).startswith(prefix)), None)
        if why is not None:
            errors.add(below("conf", key), f"would do nothing: {why}.")
    job_type = config.pop(TYPE, JobType.BATCH.value)
    is_streaming = job_type == JobType.STREAMING
    if not is_streaming and not any(str(key).startswith(_RESTARTS) for key in config):
        # As Livy does it: who submits decides whether it is tried again.
        config[f"{_RESTARTS}.type"] = "none"
    if "driverMemory" in fields:
        if MEMORY_SETTING in config:
            fields.wrong("driverMemory", f"is there besides {MEMORY_SETTING} in conf: give one of them.")
        config[MEMORY_SETTING] = fields.raw("driverMemory")
    most = _most_slots(fields, is_streaming=is_streaming)
    script = next(iter(files), "")
    stem = script.removesuffix(".py")
    document = {
        "name": fields.raw("name") if "name" in fields else stem,
        "type": job_type,
        "script": script,
        "args": fields.raw("args") if "args" in fields else [],
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


def _variables(errors: Errors, config: dict[object, object]) -> dict[str, object]:
    """The environment variables that are in ``config``, which are taken from it."""
    found: dict[str, object] = {}
    for key in [key for key in config if str(key).startswith(_DRIVER_ENV)]:
        name, value = str(key).removeprefix(_DRIVER_ENV[0]).removeprefix(_DRIVER_ENV[1]), config.pop(key)
        if fault := variable_fault(name):
            errors.add(below("conf", key), fault)
        elif not isinstance(value, str | int | float):
            errors.add(below("conf", key), f"should be a text, found {kind_of(value)}.")
        elif found.setdefault(name, value) != value:
            errors.add(below("conf", key), f"is there besides another {name}, with another value: give one.")
    return found


def _whole(name: str, value: object) -> object:
    """Livy takes numbers as texts too."""
    is_number = name in ("numExecutors", "executorCores") and isinstance(value, str) and _DIGITS.match(value)
    return int(str(value)) if is_number else value


def _files(fields: Fields) -> dict[str, FileAsked]:
    """By name; the program is the first."""
    found: dict[str, FileAsked] = {}
    if fields.present("file", "the path of a Python program"):
        _add_file(fields.errors, found, "file", fields.raw("file"), (".py",))
    for name, endings in (("pyFiles", _PYTHON_FILES), ("files", ())):
        for place, value in fields.elements(name, "a list of paths", MAX_ARTIFACTS):
            _add_file(fields.errors, found, place, value, endings)
    return found


def _add_file(
    errors: Errors, found: dict[str, FileAsked], place: str, value: object, endings: tuple[str, ...]
) -> None:
    path = _local_path(value)
    name = (path or "").rpartition("/")[2]
    if path is None:
        what = shown(value) if isinstance(value, str) else kind_of(value)
        errors.add(
            place,
            f"should be a path on the server's host below its setting livy_files_dir, such as jobs/etl.py or "
            f"file:///srv/jobs/etl.py, found {what}.",
        )
    elif endings and not name.endswith(endings):
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


def _most_slots(fields: Fields, *, is_streaming: bool) -> int | None:
    """How many tasks at a time the executors would run that were asked for: the upper bound of the program."""
    executors = fields.integer("numExecutors", 1, MAX_PARALLELISM_LIMIT)
    cores = fields.integer("executorCores", 1, MAX_PARALLELISM_LIMIT)
    if cores is not None and "numExecutors" not in fields:
        fields.wrong("executorCores", "says how parallel a batch may be only together with numExecutors.")
    if executors is None:
        return None
    most = executors * (cores or 1)
    if is_streaming:
        fields.wrong(
            "numExecutors",
            "is for BATCH programs: declare the bounds of each vertex of a STREAMING one when it runs.",
        )
    elif most > MAX_PARALLELISM_LIMIT:
        fields.wrong(
            "numExecutors",
            f"times executorCores is {most}: at most {MAX_PARALLELISM_LIMIT} tasks can run at a time.",
        )
    return most


def in_words_of_livy(text: str) -> str:
    """An error of a program's document, with its place as Livy's body has it."""
    return _PLACE.sub(lambda match: _PLACES[match[1]], text, count=1) if _PLACE.match(text) else text

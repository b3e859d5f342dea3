"""`slotwise submit`: a graph file or a program, checked and sent to the server with its files, as a job or as a new
version of one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from app.api.limits import BODY_LIMIT_BYTES, FORM_LIMIT_BYTES
from app.api.yamltext import decode_yaml_strict
from app.cli.client import Client, Json
from app.cli.errors import CliError, TimeIsOver, UsageError
from app.cli.events import LOOK_S, JobChanges
from app.cli.jobs import accepted, ended_as
from app.cli.options import Call
from app.cli.output import warn
from app.cli.programs import (
    ProgramOptions,
    Submitted,
    is_program_file,
    read_files,
    read_program_file,
    send_to,
    with_file_hint,
)
from app.cli.waiting import not_under_way, wait_until_under_way
from app.documents.program import is_program, parse_submitted
from app.model.grapherrors import GraphErrors
from app.model.status import TERMINAL_STATUSES
from app.model.strictjson import StrictTextError, decode_json_strict

JobFileArgument = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", show_default=False, help="A job graph in YAML or .json, or a PySpark program, .py."
    ),
]
ReplaceOption = Annotated[
    str | None,
    typer.Option(
        "--replace",
        metavar="JOB",
        show_default=False,
        help="A running job, by id or name, that FILE replaces as a new version, from the job's checkpoints.",
    ),
]

_UNDER_WAY: Final = ("STARTING", "TRIAL")


def submit(
    file: JobFileArgument,
    options: ProgramOptions,
    call: Call,
    replace: ReplaceOption = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return once the job has processed something, or has ended.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=1, metavar="SECONDS", show_default=False, help="With --wait: give up waiting, with status 4."
        ),
    ] = None,
) -> None:
    """Submit a job: a job graph, whose relative paths and artifacts are looked up beside its file, or a PySpark program
    as it is. Its vertices come when it starts its queries."""
    if timeout is not None and not (wait and timeout < float("inf")):
        raise UsageError("--timeout is a number of seconds, and needs --wait.")
    if replace is not None and options.origin is not None:
        raise UsageError(
            "--from and --replace exclude each other: a new version goes on from the checkpoints of its job."
        )
    submitted = read_submitted(file, options)
    if replace is not None:
        replace_job(replace, submitted, call, wait=wait, timeout_s=timeout)
        return
    problem: CliError | None = None
    job_id = str(send_to(call.client, "POST", "/jobs", submitted)["jobid"])
    state = "accepted"
    if wait:
        with accepted(call.client, f"The job {job_id} was submitted, and continues.", timeout):
            details = wait_until_under_way(call.client, job_id, timeout)
        state = details["state"]
        if state in TERMINAL_STATUSES:
            if state != "FINISHED":
                problem = with_file_hint(ended_as(call.client, job_id, state), submitted)
        elif not details["underWay"] and timeout is not None:
            problem = not_under_way(details, timeout)
    if call.as_json or problem is None:
        told = {"jobid": job_id, "jobUrl": f"/jobs/{job_id}", "state": state}
        call.answer(told, f"{job_id} is {state}." if wait else job_id)
    if problem is not None:
        raise problem


def read_submitted(path: Path, options: ProgramOptions) -> Submitted:
    """What the file and the options of a command are, as the server is sent it.

    Raises:
        UsageError: with everything that is wrong.
    """
    if is_program_file(path):
        return read_program_file(path, options, FORM_LIMIT_BYTES)
    options.refuse_for_graphs()
    document = read_graph(path)
    options.add_origin(document)
    return Submitted(document, check_graph(path, document), path, is_program=is_program(document))


def read_graph(path: Path) -> dict[str, Any]:
    """The graph document of a YAML or JSON file, its relative paths made absolute.

    Raises:
        UsageError: the file cannot be read, or is not a mapping.
    """
    document = read_document(path, "graph", "a mapping with name, type and vertices")
    resolve_paths(document, path.parent.absolute())
    return document


def read_document(path: Path, noun: str, expected: str) -> dict[str, Any]:
    """The mapping in a YAML or JSON file, read as the server reads it. ``noun`` and ``expected`` say what it should be.

    Raises:
        UsageError: the file cannot be read, or is not a mapping.
    """
    try:
        with path.open("rb") as file:
            # One byte more than is allowed: what is endless, such as a device, is refused like what is too large.
            content = file.read(BODY_LIMIT_BYTES + 1)
    except OSError as error:
        raise UsageError(f"The {noun} {path} cannot be read: {error.strerror}.") from None
    if len(content) > BODY_LIMIT_BYTES:
        raise UsageError(f"The {noun} {path} is too large: at most {BODY_LIMIT_BYTES} bytes are allowed.")
    if not content.strip():
        raise UsageError(f"The {noun} {path} is empty: {expected} is expected.")
    try:
        is_json = path.suffix.lower() == ".json"
        document = decode_json_strict(content) if is_json else decode_yaml_strict(content)
    except StrictTextError as error:
        raise UsageError(f"The {noun} {path} cannot be used.", *error.errors) from None
    if not isinstance(document, dict):
        raise UsageError(f"The {noun} {path} should be {expected}.")
    return document


def resolve_paths(document: dict[str, Any], folder: Path) -> None:
    """Make `from`, and the `path` of each source and sink, absolute, seen from ``folder``. URLs stay as they are."""
    _resolve(document, "from", folder)
    vertices = document.get("vertices")
    for vertex in vertices if isinstance(vertices, list) else []:
        for role in ("source", "sink"):
            operation = vertex.get(role) if isinstance(vertex, dict) else None
            if isinstance(operation, dict):
                _resolve(operation, "path", folder)


def _resolve(fields: dict[str, Any], name: str, folder: Path) -> None:
    place = fields.get(name)
    if isinstance(place, str) and place and "://" not in place and not place.startswith("file:"):
        # normpath, not resolve: a link stays the path that the author wrote. A home that does not exist stays a part of
        # the path: `~nobody/in` is then looked for beside the graph.
        resolved = os.path.normpath(folder / os.path.expanduser(place))
        fields[name] = resolved + ("/" if place.endswith("/") else "")


def check_graph(path: Path, document: dict[str, Any]) -> dict[str, bytes]:
    """The artifacts of a graph that the server would take, by name.

    Raises:
        UsageError: with every error of the graph, and every artifact that is not there.
    """
    errors: list[str] = []
    listed: object = document.get("artifacts")
    try:
        # A program's script is an artifact, listed or not.
        listed = list(parse_submitted(document).artifacts)
    except GraphErrors as error:
        errors += error.errors
    artifacts: dict[str, bytes] = {}
    try:
        artifacts = read_artifacts(listed, path.parent)
    except UsageError as error:
        errors += error.errors
    if errors:
        count = "an error" if len(errors) == 1 else f"{len(errors)} errors"
        raise UsageError(f"The graph {path} has {count}; nothing was sent.", *errors)
    return artifacts


def read_artifacts(listed: object, folder: Path) -> dict[str, bytes]:
    """The files that a document lists under `artifacts`, by name, read from ``folder``.

    Raises:
        UsageError: some are not there, or they are too large.
    """
    # Names with folders are an error of the graph, which says so; they are not followed.
    names = [
        name
        for name in (listed if isinstance(listed, list) else [])
        if isinstance(name, str) and name and os.path.basename(name) == name and "\0" not in name
    ]
    errors: list[str] = []
    found = read_files([folder.absolute() / name for name in dict.fromkeys(names)], FORM_LIMIT_BYTES, errors)
    if errors:
        raise UsageError(*errors)
    return found


def send(client: Client, document: dict[str, Any], artifacts: dict[str, bytes]) -> str:
    """Submit a graph with its artifacts and return the job's id."""
    return str(send_to(client, "POST", "/jobs", Submitted(document, artifacts))["jobid"])


def wait_until_running(client: Client, job_id: str, tell: Callable[[str], None]) -> str:
    """Wait until the job has processed something (or has finished already) and return its status. ``tell`` is given
    what happens meanwhile.

    Raises:
        CliError: it failed or was cancelled instead; with the reason.
    """
    state = str(wait_until_under_way(client, job_id, tell=tell)["state"])
    if state in TERMINAL_STATUSES and state != "FINISHED":
        raise ended_as(client, job_id, state)
    return state


def replace_job(job: str, submitted: Submitted, call: Call, *, wait: bool, timeout_s: float | None) -> None:
    """Replace ``job``, and with ``wait`` wait until the new version has proven itself.

    Raises:
        CliError: it was taken back, or the job ended.
    """
    problem: CliError | None = None
    job_id = call.client.find_job(job, "change")
    number = int(send_to(call.client, "PUT", f"/jobs/{job_id}/graph", submitted)["version"])
    outcome = "STARTING"
    if wait:
        sentence = f"Version {number} of the job {job_id} was accepted, and continues."
        with accepted(call.client, sentence, timeout_s):
            first = "; if its environment is new, it is built first" if submitted.has_environment else ""
            version, problem = _outcome(call.client, job_id, number, timeout_s, first)
            outcome = version["outcome"]
    if call.as_json or problem is None:
        told = {"IN_FORCE": "is in force", "REPLACED": "was in force, and is replaced"}
        call.answer(
            {"jobid": job_id, "version": number, "outcome": outcome},
            f"Version {number} of {job_id} {told.get(outcome, 'is being started')}.",
        )
    if problem is not None:
        raise problem if isinstance(problem, TimeIsOver) else with_file_hint(problem, submitted)


def _outcome(
    client: Client, job_id: str, number: int, timeout_s: float | None, first: str
) -> tuple[Json, CliError | None]:
    """What became of a version, and what is wrong with that. ``first``: what is said besides of its start."""
    began_s, told = time.monotonic(), ""
    with JobChanges(client, job_id) as changes:
        while True:
            versions = client.get(f"/jobs/{job_id}/versions")["versions"]
            version = next((one for one in versions if one["version"] == number), None)
            if version is None:
                raise CliError(f"The server does not know any more what became of version {number}.")
            outcome = version["outcome"]
            if outcome not in _UNDER_WAY:
                return version, _problem_of(version)
            state = str(client.get(f"/jobs/{job_id}")["state"])
            if state in TERMINAL_STATUSES:
                return version, ended_as(client, job_id, state) if state != "FINISHED" else None
            if outcome != told:
                stage = f"being started{first}" if outcome == "STARTING" else "on trial"
                warn(f"Version {number} is {stage} ...")
                told = outcome
            left_s = None if timeout_s is None else began_s + timeout_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                sentence = f"Version {number} has not proven itself within {timeout_s:g} s. It goes on."
                return version, TimeIsOver(sentence, f"See: slotwise explain {job_id}")
            changes.wait(left_s if left_s is not None and left_s < LOOK_S else None)


def _problem_of(version: Json) -> CliError | None:
    """Why a version whose trial is over is not in force; None if it is, or was."""
    number, why = version["version"], version["why"]
    if version["outcome"] == "TAKEN_BACK":
        return CliError(f"Version {number} was taken back, and the version before is in force: {why}")
    return CliError(f"Version {number}: {why}") if version["outcome"] == "DROPPED" else None

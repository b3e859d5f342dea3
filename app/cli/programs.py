"""Programs on the command line: the document that `submit` makes of a Python file and its options."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.models import OptionInfo

from app.cli.client import Client, Json, new_key
from app.cli.errors import CliError, UsageError
from app.cli.require import parse_bounds
from app.documents.program import parse_program
from app.model.grapherrors import GraphErrors
from app.model.jobgraph import JobType
from app.model.locations import plain_location
from app.model.variables import VARIABLES

_MISSING = re.compile(r"\bno module (?:named )?'?([A-Za-z_]\w*)", re.IGNORECASE)


def _said(name: str, metavar: str, said: str) -> Any:
    """An option of programs, of which ``said`` says what it is."""
    return typer.Option(name, metavar=metavar, show_default=False, help=f"For a program: {said}")


@dataclass(frozen=True, slots=True)
class ProgramOptions:
    """What is said of a program beside its file. Each field is an option of a command (`expanded`)."""

    args: Annotated[
        list[str],
        typer.Argument(
            metavar="[-- ARGS]", show_default=False, help="For a program: its arguments, after two dashes."
        ),
    ] = field(default_factory=list)
    name: Annotated[str | None, _said("--name", "NAME", "default is its file's name.")] = None
    bounds: Annotated[
        list[str],
        _said(
            "--bounds",
            "VERTEX=LOWER:UPPER",
            "how parallel a vertex may be; either number may be left out. slotwise show has the names, once the "
            "program has started its queries.",
        ),
    ] = field(default_factory=list)
    conf: Annotated[list[str], _said("--conf", "NAME=VALUE", "a setting of Spark, or an option.")] = field(
        default_factory=list
    )
    env: Annotated[
        list[str],
        _said("--env", "NAME=VALUE", "an environment variable, for it and the Python workers of its tasks."),
    ] = field(default_factory=list)
    files: Annotated[
        list[Path],
        _said(
            "--file",
            "FILE",
            "a file that it needs, such as a module that it imports; .zip and .whl are imported from.",
        ),
    ] = field(default_factory=list)
    python: Annotated[
        str | None,
        _said(
            "--python", "PYTHON", "the Python that it runs with, a path on the server's host; it has PySpark."
        ),
    ] = None
    requirements: Annotated[
        list[str],
        _said(
            "--requirements",
            "FILE|SPEC",
            "what the server installs for it, such as pyspark==4.2.0, or a requirements.txt with such lines.",
        ),
    ] = field(default_factory=list)
    archive: Annotated[
        str | None,
        _said(
            "--archive",
            "FILE",
            "the environment that it runs in, as venv-pack and conda-pack make it: a .tar.gz on the server's host, or "
            "one that --file sends along.",
        ),
    ] = None
    packages: Annotated[
        list[str],
        _said("--package", "G:A:V", "a package of Spark by its coordinates, group:artifact:version."),
    ] = field(default_factory=list)
    origin: Annotated[
        str | None,
        _said(
            "--from",
            "CHECKPOINT",
            "the directory of a checkpoint on the server's host; the job continues from a copy of it.",
        ),
    ] = None
    batch: Annotated[
        bool,
        typer.Option(
            "--batch", help="For a program without streaming queries: the job ends when the program ends."
        ),
    ] = False

    def add_origin(self, document: dict[str, Any]) -> None:
        """Let ``document`` say what its job goes on from."""
        if self.origin is not None:
            document["from"] = plain_location(self.origin) or os.path.abspath(self.origin)

    def refuse_for_graphs(self) -> None:
        """But for `from`, which is not of the document alone.

        Raises:
            UsageError: something is said that a graph says in its document.
        """
        hints = get_type_hints(ProgramOptions, include_extras=True)
        told = {
            name: info for name, hint in hints.items() if isinstance(info := hint.__metadata__[0], OptionInfo)
        }
        errors = [
            f"{info.default} is for programs (*.py): a graph says it in its document."
            for name, info in told.items()
            if getattr(self, name) and name != "origin"
        ]
        if self.args:
            errors.append(f"{self.args[0]!r} is one argument too many: only programs (*.py) have arguments.")
        if errors:
            raise UsageError(*errors)


@dataclass(frozen=True, slots=True)
class Submitted:
    """A document that the server would take, and the files that go with it."""

    document: dict[str, Any]
    artifacts: dict[str, bytes] = field(default_factory=dict)
    path: Path = Path()
    is_program: bool = False

    @property
    def has_environment(self) -> bool:
        """Whether it is to run in one of its own, which may have to be built."""
        return bool(self.document.keys() & {"environment", "packages"})


def is_program_file(path: Path) -> bool:
    return path.suffix.lower() == ".py"


def read_program_file(path: Path, options: ProgramOptions, most_bytes: int) -> Submitted:
    """The program at ``path`` with its ``options``.

    Raises:
        UsageError: with everything that is wrong.
    """
    errors: list[str] = []
    document: dict[str, Any] = {
        "name": path.stem if options.name is None else options.name,
        "script": path.name,
        "args": list(options.args),
        **({"type": JobType.BATCH.value} if options.batch else {}),
    }
    files = [path, *options.files]
    artifacts = read_files(files, most_bytes, errors)
    document["artifacts"] = list(dict.fromkeys(each.name for each in files))
    if (environment := _environment(options, errors)) is not None:
        document["environment"] = environment
    if options.packages:
        document["packages"] = list(options.packages)
    options.add_origin(document)
    document["config"] = _settings("--conf", options.conf, "spark.sql.shuffle.partitions=24", errors)
    if options.env:
        document[VARIABLES] = _settings("--env", options.env, "TOPIC=words", errors)
    try:
        document["bounds"] = {
            name: {
                **({} if lower is None else {"lowerBound": lower}),
                **({} if upper is None else {"upperBound": upper}),
            }
            for name, (lower, upper) in parse_bounds(list(options.bounds)).items()
        }
    except UsageError as error:
        errors += error.errors
    try:
        parse_program(document)
    except GraphErrors as error:
        errors += error.errors
    if errors:
        raise UsageError(f"The program {path} cannot be submitted; nothing was sent.", *errors)
    return Submitted(document, artifacts, path, is_program=True)


def read_files(paths: Sequence[Path], most_bytes: int, errors: list[str]) -> dict[str, bytes]:
    """The files of a job by name, ``most_bytes`` in all. What is wrong with them goes to ``errors``."""
    found: dict[str, bytes] = {}
    left = most_bytes
    for path in paths:
        if path.name in found:
            errors.append(f"Two files have the name {path.name}: files of a job lie in one directory.")
            continue
        try:
            with path.open("rb") as file:
                found[path.name] = file.read(left + 1)
        except IsADirectoryError:
            errors.append(f"{path} is a directory: a package is sent along as a .zip of it.")
            continue
        except (OSError, ValueError) as error:
            errors.append(f"The file {path} cannot be read: {getattr(error, 'strerror', None) or error}.")
            continue
        left -= len(found[path.name])
        if left < 0:
            errors.append(f"The files are too large: {most_bytes >> 20} MiB in all are allowed.")
            break
    return found


def _environment(options: ProgramOptions, errors: list[str]) -> dict[str, Any] | None:
    """What the program runs in, as a document says it; None for the server's environment."""
    archive = options.archive
    if archive is not None and archive not in {file.name for file in options.files}:
        archive = _absolute(archive)
    given: dict[str, Any] = {
        "python": None if options.python is None else _absolute(options.python),
        "requirements": [line for text in options.requirements for line in _requirements(text, errors)]
        if options.requirements
        else None,
        "archive": archive,
    }
    said = {name: value for name, value in given.items() if value is not None}
    if len(said) > 1:
        names = " and ".join(f"--{name}" for name in said)
        errors.append(f"{names} exclude each other: a program runs in one environment.")
        return None
    return said or None


def _absolute(path: str) -> str:
    """Seen from here. A bare name stays one: it is on nobody's PATH."""
    return os.path.abspath(path) if os.sep in path or path.endswith(".gz") else path


def _requirements(text: str, errors: list[str]) -> list[str]:
    """One requirement, or those of a file. What ends in .txt, or has a folder in it, is a file."""
    if not text.endswith(".txt") and (os.sep not in text or "@" in text):
        return [text]
    try:
        lines = Path(text).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        errors.append(f"The file {text} cannot be read: {getattr(error, 'strerror', None) or error}.")
        return []
    return [line for each in lines if (line := re.sub(r"(^|\s)#.*", "", each).strip())]


def _settings(option: str, texts: Sequence[str], example: str, errors: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            errors.append(f"{option} {text!r} is not NAME=VALUE, for example {example}.")
        elif name in found:
            errors.append(f"{option} {name} is given twice.")
        else:
            found[name] = value
    return found


def with_file_hint(error: CliError, submitted: Submitted) -> CliError:
    """``error``, which says why a job failed, with what the server cannot know."""
    hint = _file_hint(error.errors, submitted.path, submitted.artifacts)
    return error if hint is None else CliError(*error.errors, hint)


def _file_hint(sentences: Sequence[str], path: Path, artifacts: Mapping[str, bytes]) -> str | None:
    """What to do about a module that is missing although it lies beside the script."""
    match = next((found for sentence in sentences if (found := _MISSING.search(sentence))), None)
    if match is None:
        return None
    module = match[1]
    beside = path.parent / f"{module}.py"
    if beside.name not in artifacts and beside.is_file():
        return f"{beside.name} is in the directory of {path.name}, but is not sent automatically: add --file {beside}"
    package = path.parent / module
    if package.is_dir() and not any(name.startswith(f"{module}.") for name in artifacts):
        archive = f"{module}.zip"
        return (
            f"The package {module} is in the directory of {path.name}, but is not sent automatically: make {archive} "
            f"(cd {os.path.normpath(path.parent)} && python -m zipfile -c {archive} {module}) and add --file {archive}"
        )
    return None


def send_to(client: Client, method: str, path: str, submitted: Submitted) -> Json:
    """Send it to ``path``; the server's answer."""
    # A request that is repeated because its answer was lost is answered as the first one.
    headers = new_key()
    if not submitted.artifacts:
        return client.request(method, path, headers=headers, body=submitted.document)[0]
    graph = json.dumps(submitted.document, allow_nan=False).encode()
    files = [("graph", ("graph.json", graph, "application/json"))]
    files += [
        ("files", (name, content, "application/octet-stream"))
        for name, content in submitted.artifacts.items()
    ]
    return client.request(method, path, headers=headers, files=files)[0]

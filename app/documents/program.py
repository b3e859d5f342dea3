"""The form of documents of programs: an ordinary PySpark script, submitted without vertices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import Field, StringConstraints, model_validator

from app.documents.fields import FILE_NAME, JobForm
from app.documents.form import (
    Expected,
    Form,
    Given,
    Tasks,
    Text,
    checked_by,
    fault_at,
    read_form,
    settings_of,
)
from app.documents.graph import parse_document
from app.model.environment import path_fault
from app.model.graphdoc_program import ProgramDocument
from app.model.graphdoc_settings import (
    MAX_ARTIFACTS,
    MAX_BOUNDS,
    check_config,
    check_runtime,
    check_size,
)
from app.model.grapherrors import Errors, GraphErrors, text_fault
from app.model.jobgraph import MAX_SETTING_CHARS, JobGraph, JobType, NamedBounds, ProgramSpec
from app.model.locations import plain_location
from app.model.sentences import shown

MAX_ARGS: Final = 1_000


def _script_fault(name: str) -> str | None:
    if FILE_NAME.match(name) and name.endswith(".py"):
        return None
    return f"should be the name of a Python file among the artifacts, such as job.py, found {shown(name)}."


def _origin_fault(origin: str) -> str | None:
    plain = plain_location(origin)
    if plain is not None and not path_fault(plain):
        return None
    return (
        f"should be an absolute path on the host of the server, found {shown(origin)}. A checkpoint on another file "
        "system has to be copied there before."
    )


_Argument = Annotated[
    str, StringConstraints(max_length=MAX_SETTING_CHARS), checked_by(text_fault), Expected("a text")
]


class BoundsForm(Form):
    """The initial bounds of a vertex."""

    what = "the bounds of a vertex"
    lower_bound: Given[Tasks] = None
    upper_bound: Given[Tasks] = None

    @model_validator(mode="after")
    def _are_in_order(self) -> Self:
        lower, upper = self.lower_bound, self.upper_bound
        if lower is not None and upper is not None and lower > upper:
            raise fault_at("lowerBound", f"{lower} is higher than the upperBound {upper}.")
        return self


class ProgramForm(JobForm):
    """A program, whose vertices are read from its plan."""

    what = "a program"
    refused: ClassVar[Mapping[str, str]] = {
        "vertices": "the vertices of a program are read from its plan: say how parallel they may be under bounds, by "
        "name."
    }
    example: ClassVar[Mapping[str, Any] | None] = {
        "name": "words",
        "script": "job.py",
        "args": ["--topic", "words"],
        "bounds": {"counts": {"lowerBound": 1, "upperBound": 4}},
    }
    type: JobType = JobType.STREAMING
    script: Annotated[
        Text,
        Field(max_length=300),
        checked_by(_script_fault),
        Expected("the file of a program, such as job.py"),
    ] = Field(
        description="The file of the program, which is one of the files sent along: an ordinary PySpark script."
    )
    args: Given[Annotated[list[_Argument], Field(max_length=MAX_ARGS), Expected("a list of texts")]] = Field(
        None, description="Its arguments."
    )
    origin: Given[
        Annotated[
            Text,
            checked_by(_origin_fault),
            Expected("the directory of a checkpoint on the host of the server"),
        ]
    ] = Field(
        None,
        alias="from",
        description="The directory of a checkpoint on the host of the server, or of one for each query: the job goes "
        "on from a copy of it.",
    )
    bounds: Given[
        Annotated[
            dict[str, BoundsForm],
            Field(max_length=MAX_BOUNDS),
            Expected("a mapping of vertex names to lowerBound and upperBound"),
        ]
    ] = Field(
        None,
        description="How parallel the vertices may be, by name; default: 1 to the state partitions, or 12.",
    )


def is_program(document: object) -> bool:
    """Whether a document is that of a program, and not a job graph."""
    return isinstance(document, Mapping) and "script" in document


def parse_submitted(document: object) -> JobGraph | ProgramDocument:
    """What a client submits: a job graph or a program.

    Raises:
        GraphErrors: with all errors, each with its place and a sentence.
    """
    return parse_program(document) if is_program(document) else parse_document(document)


def parse_program(document: object) -> ProgramDocument:
    """The program that ``document`` (as decoded from JSON or YAML) describes.

    Raises:
        GraphErrors: with all errors, each with its place and a sentence.
    """
    form, errors = read_form(ProgramForm, document), Errors()
    listed, config, runtime = tuple(form.artifacts or ()), settings_of(form.config), form.runtime
    artifacts = listed if form.script in listed else (form.script, *listed)
    args, origin = tuple(form.args or ()), form.origin and plain_location(form.origin)
    check_runtime(errors, runtime, artifacts)
    check_config(errors, config, form.type, program=True)
    check_size(errors, [config, runtime.variables], [*args, *form.texts])
    if origin is not None and form.type is JobType.BATCH:
        errors.add("from", "is for programs with streaming queries: a BATCH program has no checkpoint.")
    if len(artifacts) > MAX_ARTIFACTS:
        sentence = f"with the script there are {len(artifacts)}: at most {MAX_ARTIFACTS} are allowed."
        errors.add("artifacts", sentence)
    if errors:
        raise GraphErrors(errors.texts())
    bounds = tuple(
        NamedBounds(name, said.lower_bound, said.upper_bound) for name, said in (form.bounds or {}).items()
    )
    program = ProgramSpec(form.script, args, origin)
    return ProgramDocument(form.name, form.type, program, artifacts, config, bounds, runtime)

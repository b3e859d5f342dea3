"""The form of documents of programs: an ordinary PySpark script, submitted without vertices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import Field, model_validator

from app.documents.fields import JobForm, check_origin
from app.documents.form import (
    Expected,
    Form,
    Given,
    Tasks,
    Text,
    checked_by,
    fault_at,
    read_form,
    written_as,
)
from app.documents.graph import parse_document
from app.model.graphdoc_program import ProgramDocument
from app.model.graphdoc_settings import (
    MAX_ARTIFACTS,
    MAX_BOUNDS,
    check_archive,
    check_config,
    check_size,
)
from app.model.grapherrors import Errors, GraphErrors, text_fault
from app.model.jobgraph import MAX_SETTING_CHARS, JobGraph, JobType, NamedBounds, ProgramSpec

MAX_ARGS: Final = 1_000
_PYTHON_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+ -]{0,196}\.py\Z")


_Script = Annotated[
    Text,
    written_as(_PYTHON_FILE.match, "the name of a Python file among the artifacts, such as job.py"),
    Expected("the file of a program, such as job.py", 300),
]
_Argument = Annotated[str, checked_by(text_fault), Expected("a text", MAX_SETTING_CHARS)]


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
    script: _Script = Field(
        description="The file of the program, which is one of the files sent along: an ordinary PySpark script."
    )
    args: Annotated[tuple[_Argument, ...], Expected("a list of texts", MAX_ARGS)] = Field(
        (), description="Its arguments."
    )
    bounds: Annotated[
        dict[str, BoundsForm],
        Expected("a mapping of vertex names to lowerBound and upperBound", MAX_BOUNDS),
    ] = Field(
        {},
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
    config, runtime = tuple(form.config.items()), form.runtime
    artifacts = form.artifacts if form.script in form.artifacts else (form.script, *form.artifacts)
    check_archive(errors, runtime, artifacts)
    check_config(errors, config, form.type, program=True)
    check_size(errors, [config], runtime, form.args)
    check_origin(errors, form)
    if len(artifacts) > MAX_ARTIFACTS:
        sentence = f"with the script there are {len(artifacts)}: at most {MAX_ARTIFACTS} are allowed."
        errors.add("artifacts", sentence)
    if errors:
        raise GraphErrors(errors.texts())
    program = ProgramSpec(form.script, form.args)
    bounds = tuple(NamedBounds(name, of.lower_bound, of.upper_bound) for name, of in form.bounds.items())
    return ProgramDocument(
        form.name, form.type, program, artifacts, config, bounds, runtime, form.goes_on_from
    )

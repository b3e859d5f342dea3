"""The fields that job graphs and programs share: artifacts, config, and what the job runs in."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import Field

from app.documents.form import (
    LISTED_ONCE,
    Expected,
    Form,
    Given,
    Key,
    Name,
    Setting,
    Text,
    checked_by,
    written_as,
)
from app.model.environment import (
    MAX_PACKAGES,
    MAX_REQUIREMENTS,
    EnvironmentSpec,
    Runtime,
    package_fault,
    path_fault,
    requirement_fault,
)
from app.model.graphdoc_settings import MAX_ARTIFACTS
from app.model.grapherrors import Errors
from app.model.jobgraph import JobType
from app.model.locations import plain_location
from app.model.sentences import shown
from app.model.variables import MAX_VARIABLES, VARIABLES, variable_fault

FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+ -]{0,199}\Z")
MAX_SETTINGS: Final = 500

_REQUIREMENT = "a requirement such as numpy==2.1.0"
_COORDINATES = "coordinates such as group:artifact:version"
_FILE = "the name of a file beside the graph, of letters, digits and . _ + - and without folders"

_Path = Annotated[Text, Expected("a path on the host of the server")]
_Python = Annotated[_Path, checked_by(path_fault)]
_Requirement = Annotated[Text, checked_by(requirement_fault), Expected(_REQUIREMENT)]
_Coordinates = Annotated[Text, checked_by(package_fault), Expected(_COORDINATES)]
_FileName = Annotated[Text, written_as(FILE_NAME.match, _FILE), Expected("a file name")]
_Variable = Annotated[str, checked_by(variable_fault)]


def _origin_fault(origin: str) -> str | None:
    plain = plain_location(origin)
    if plain is not None and not path_fault(plain):
        return None
    return (
        f"should be an absolute path on the host of the server, found {shown(origin)}. A checkpoint on another file "
        "system has to be copied there before."
    )


_Origin = Annotated[
    Text, checked_by(_origin_fault), Expected("the directory of a checkpoint on the host of the server")
]


class EnvironmentForm(Form):
    """The environment of the job: exactly one of these fields. Default: the environment of the server."""

    what = "an environment"
    one_of = ("python", "archive", "requirements")
    python: Given[_Python] = Field(None, description="The path of a Python that has PySpark.")
    archive: Given[_Path] = Field(
        None, description="A packed environment: a path on the server's host, or one of the artifacts."
    )
    requirements: Annotated[
        tuple[_Requirement, ...],
        Expected(f"a list of {_REQUIREMENT}", MAX_REQUIREMENTS, empty="leave environment out"),
    ] = Field((), description="What pip is asked to install.")


class JobForm(Form):
    """What graphs and programs say alike."""

    name: Name = Field(description="The ids of vertices are computed from it and from their names.")
    type: JobType
    artifacts: Annotated[
        tuple[_FileName, ...], Expected("a list of file names", MAX_ARTIFACTS), LISTED_ONCE
    ] = Field((), description="Names of the files sent along.")
    environment: Given[
        Annotated[EnvironmentForm, Expected("a mapping with one of python, archive, requirements")]
    ] = None
    packages: Annotated[tuple[_Coordinates, ...], Expected(f"a list of {_COORDINATES}", MAX_PACKAGES)] = (
        Field((), description="Packages of Spark: group:artifact:version.")
    )
    variables: Annotated[
        dict[_Variable, Setting],
        Expected("a mapping of names of environment variables to texts", MAX_VARIABLES),
    ] = Field({}, alias=VARIABLES, description="For the program, and the Python workers of its tasks.")
    origin: Given[_Origin] = Field(
        None,
        alias="from",
        description="The directory of a checkpoint on the host of the server, or of one for each query: the job goes "
        "on from a copy of it.",
    )
    config: Annotated[
        dict[Key, Setting], Expected("a mapping of spark.* settings and scheduler options", MAX_SETTINGS)
    ] = Field({}, description="Settings of Spark (`spark.*`) and options of the scheduler.")

    @property
    def runtime(self) -> Runtime:
        own = self.environment
        spec = None if own is None else EnvironmentSpec(own.python, own.archive, own.requirements)
        return Runtime(spec, self.packages, variables=tuple(self.variables.items()))

    @property
    def goes_on_from(self) -> str | None:
        """The directory that `from` says, as a path."""
        return None if self.origin is None else plain_location(self.origin)


def check_origin(errors: Errors, form: JobForm) -> None:
    if form.origin is not None and form.type is JobType.BATCH:
        errors.add("from", "is for jobs with streaming queries: a BATCH job has no checkpoint.")

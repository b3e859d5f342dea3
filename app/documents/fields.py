"""The fields that job graphs and programs share: artifacts, config, and what the job runs in."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

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
    settings_of,
)
from app.model.environment import (
    MAX_PACKAGES,
    MAX_REQUIREMENTS,
    EnvironmentSpec,
    Runtime,
    package_fault,
    requirement_fault,
)
from app.model.graphdoc_settings import MAX_ARTIFACTS
from app.model.jobgraph import JobType
from app.model.sentences import shown
from app.model.variables import MAX_VARIABLES, VARIABLES, variable_fault

FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+ -]{0,199}\Z")
MAX_SETTINGS: Final = 500


def _file_fault(name: str) -> str | None:
    if FILE_NAME.match(name):
        return None
    return (
        "should be the name of a file beside the graph, of letters, digits and . _ + - and without folders, found "
        f"{shown(name)}."
    )


def _ended(fault_of: Callable[[str], str | None]) -> Callable[[str], str | None]:
    """``fault_of`` with a full stop."""
    return lambda text: f"{fault}." if (fault := fault_of(text)) else None


_FORMS = ("python", "archive", "requirements")
_Path = Annotated[Text, Expected("a path on the host of the server")]
_Requirement = Annotated[
    Text, checked_by(_ended(requirement_fault)), Expected("a requirement such as numpy==2.1.0")
]
_Coordinates = Annotated[
    Text, checked_by(_ended(package_fault)), Expected("coordinates such as group:artifact:version")
]


class EnvironmentForm(Form):
    """The environment of the job: exactly one of these fields. Default: the environment of the server."""

    what = "an environment"
    python: Given[_Path] = Field(None, description="The path of a Python that has PySpark.")
    archive: Given[_Path] = Field(
        None, description="A packed environment: a path on the server's host, or one of the artifacts."
    )
    requirements: Given[
        Annotated[
            list[_Requirement],
            Field(min_length=1, max_length=MAX_REQUIREMENTS),
            Expected("a list of a requirement such as numpy==2.1.0", empty="leave environment out"),
        ]
    ] = Field(None, description="What pip is asked to install.")

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if len(self.model_fields_set) != 1:
            given = " and ".join(name for name in _FORMS if name in self.model_fields_set)
            raise ValueError(f"should have exactly one of {', '.join(_FORMS)}, found {given or 'none'}.")
        return self

    @property
    def spec(self) -> EnvironmentSpec:
        return EnvironmentSpec(self.python, self.archive, tuple(self.requirements or ()))


Artifacts = Given[
    Annotated[
        list[Annotated[Text, checked_by(_file_fault), Expected("a file name")]],
        Field(max_length=MAX_ARTIFACTS),
        LISTED_ONCE,
        Expected("a list of file names"),
    ]
]


class JobForm(Form):
    """What graphs and programs say alike."""

    name: Name = Field(description="The ids of vertices are computed from it and from their names.")
    type: JobType
    artifacts: Artifacts = Field(None, description="Names of the files sent along.")
    environment: Given[Annotated[EnvironmentForm, Expected(f"a mapping with one of {', '.join(_FORMS)}")]] = (
        None
    )
    packages: Given[
        Annotated[
            list[_Coordinates],
            Field(max_length=MAX_PACKAGES),
            Expected("a list of coordinates such as group:artifact:version"),
        ]
    ] = Field(None, description="Packages of Spark: group:artifact:version.")
    variables: Given[
        Annotated[
            dict[Annotated[str, checked_by(variable_fault)], Setting],
            Field(max_length=MAX_VARIABLES),
            Expected("a mapping of names of environment variables to texts"),
        ]
    ] = Field(
        None,
        alias=VARIABLES,
        description="Environment variables of the program, and of the Python workers of its tasks.",
    )
    config: Given[
        Annotated[
            dict[Key, Setting],
            Field(max_length=MAX_SETTINGS),
            Expected("a mapping of spark.* settings and scheduler options"),
        ]
    ] = Field(None, description="Settings of Spark (`spark.*`) and options of the scheduler.")

    @property
    def runtime(self) -> Runtime:
        return Runtime(
            None if self.environment is None else self.environment.spec,
            tuple(self.packages or ()),
            variables=settings_of(self.variables),
        )

    @property
    def texts(self) -> list[str]:
        """Those of the runtime whose size counts with the settings."""
        return [*(self.packages or ()), *((self.environment and self.environment.requirements) or ())]

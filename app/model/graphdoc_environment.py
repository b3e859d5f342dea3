"""The fields of a document that say what the job runs in: `environment` and `packages`."""

from __future__ import annotations

from collections.abc import Callable
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
from app.model.graphdoc_fields import Fields, below

_FORMS: Final = ("python", "archive", "requirements")
_ENVIRONMENT = "a mapping with one of python, archive, requirements"


def read_runtime(fields: Fields) -> Runtime:
    """What the job runs in, as far as it can be read."""
    return Runtime(_environment(fields), _packages(fields))


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


def _packages(fields: Fields) -> tuple[str, ...]:
    return _texts(
        fields, "packages", MAX_PACKAGES, "coordinates such as group:artifact:version", package_fault
    )


def _texts(
    fields: Fields, name: str, most: int, expected: str, fault_of: Callable[[str], str | None]
) -> tuple[str, ...]:
    found: list[str] = []
    for index, value in enumerate(fields.sequence(name, f"a list of {expected}", most)):
        place = f"{fields.at(name)}[{index}]"
        text = fields.as_text(place, value, expected)
        if text is None:
            continue
        if (fault := fault_of(text)) is not None:
            fields.errors.add(place, f"{fault}.")
        fields.errors.settings_chars += len(text)
        found.append(text)
    return tuple(found)


def runtime_document(runtime: Runtime) -> dict[str, object]:
    """The fields that `read_runtime` reads."""
    document: dict[str, object] = {}
    spec = runtime.environment
    if spec is not None:
        given = {"python": spec.python, "archive": spec.archive, "requirements": list(spec.requirements)}
        document["environment"] = {name: value for name, value in given.items() if value}
    if runtime.packages:
        document["packages"] = list(runtime.packages)
    return document

"""Calls an endpoint with the arguments that it asks for, by FastAPI's description of them.

FastAPI would do so too, and find out anew with each request of what kind each parameter is: for a PUT, which has six of
them, that takes twice as long as all the rest that is done for it but its transaction (ADR 40).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any

from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import get_dependant
from fastapi.exceptions import RequestValidationError
from pydantic_core import PydanticUndefined
from starlette.requests import Request
from starlette.responses import Response


@dataclass(frozen=True, slots=True)
class _Parameter:
    """Of a path, a query or the headers: ``place`` is one of them, ``alias`` its name there."""

    name: str
    place: str
    alias: str
    validate: Callable[..., tuple[Any, list[Any]]]
    default: Any


@dataclass(frozen=True, slots=True)
class _Call:
    """Of a dependency or the endpoint. ``inputs``: argument to the number of the value that it gets, of which the first
    two are the request and the response, and the others what the calls before it give."""

    function: Callable[..., Coroutine[Any, Any, Any]]
    inputs: tuple[tuple[str, int], ...]
    defaults: dict[str, Any]


class Calls:
    """An endpoint with its dependencies: each is called once, after those that it needs. ``overrides``: dependencies of
    the endpoint, each with the one that takes its place (FastAPI's `dependency_overrides`)."""

    def __init__(
        self, dependant: Dependant, overrides: Mapping[Any, Callable[..., Any]] | None = None
    ) -> None:
        self._calls: list[_Call] = []
        # With the place of the call among all. Those without a default are needed in each request.
        self._parameters: list[tuple[int, _Parameter]] = []
        self._numbers: dict[Any, int] = {}
        self._overrides = overrides or {}
        self._add(dependant)
        self._needed = [each for each in self._parameters if each[1].default is PydanticUndefined]
        self.query_names = self._names("query")
        self.header_names = {name.lower().encode(): name for name in self._names("header")}

    async def answer(
        self, request: Request, response: Response, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> Any:
        """What the endpoint returns. It and its dependencies may set headers of ``response``. ``query``, ``headers``:
        what the request has of `query_names` and `header_names`.

        Raises:
            RequestValidationError: values of parameters are wrong, all that are. Nothing was called.
        """
        sources = {"path": request.path_params, "query": query, "header": headers}
        given = [call.defaults.copy() for call in self._calls]
        errors: list[Any] = []
        for place, parameter in self._parameters if query or headers else self._needed:
            found = sources[parameter.place].get(parameter.alias)
            # One that is missing and has no default is refused by its type, which says what it expects.
            if found is not None or parameter.default is PydanticUndefined:
                value, wrong = parameter.validate(found, loc=(parameter.place, parameter.alias))
                given[place][parameter.name] = value
                errors += wrong
        if errors:
            raise RequestValidationError(errors)
        values: list[Any] = [request, response]
        for call, arguments in zip(self._calls, given, strict=True):
            for name, number in call.inputs:
                arguments[name] = values[number]
            values.append(await call.function(**arguments))
        return values[-1]

    def _add(self, dependant: Dependant) -> int:
        inputs = [(each.name, self._add(self._in_force(each))) for each in dependant.dependencies]
        function = dependant.call
        if function not in self._numbers:
            assert function is not None and iscoroutinefunction(function), f"{function} should be async"
            for other in (
                dependant.body_params,
                dependant.cookie_params,
                dependant.background_tasks_param_name,
                dependant.security_scopes_param_name,
                dependant.http_connection_param_name,
            ):
                assert not other, f"{function} asks for what is not known here: {other}"
            inputs += [(dependant.request_param_name, 0), (dependant.response_param_name, 1)]
            self._numbers[function] = 2 + len(self._calls)
            parameters = _parameters(dependant)
            self._parameters += [(len(self._calls), each) for each in parameters]
            defaults = {
                each.name: each.default for each in parameters if each.default is not PydanticUndefined
            }
            named = tuple((name, number) for name, number in inputs if name is not None)
            self._calls.append(_Call(function, named, defaults))
        return self._numbers[function]

    def _names(self, place: str) -> set[str]:
        return {each.alias for _, each in self._parameters if each.place == place}

    def _in_force(self, dependant: Dependant) -> Dependant:
        function = self._overrides.get(dependant.call)
        if function is None:
            return dependant
        return get_dependant(path=dependant.path or "", call=function, name=dependant.name)


def _parameters(dependant: Dependant) -> list[_Parameter]:
    places = {
        "path": dependant.path_params,
        "query": dependant.query_params,
        "header": dependant.header_params,
    }
    found = [
        _Parameter(
            each.name,
            place,
            each.alias.replace("_", "-") if place == "header" else each.alias,
            each.validate,
            each.get_default(),
        )
        for place, listed in places.items()
        for each in listed
    ]
    return sorted(found, key=lambda each: each.default is not PydanticUndefined)

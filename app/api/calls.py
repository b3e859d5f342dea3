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
    """Of a dependency or the endpoint. ``inputs``: argument to the number of the call that gives it. ``needed`` are the
    parameters without a default, ``optional`` the others, whose values are in ``defaults``."""

    function: Callable[..., Coroutine[Any, Any, Any]]
    inputs: tuple[tuple[str, int], ...]
    needed: tuple[_Parameter, ...]
    optional: tuple[_Parameter, ...]
    defaults: dict[str, Any]
    request: str | None
    response: str | None


class Calls:
    """An endpoint with its dependencies: each is called once, after those that it needs. ``overrides``: dependencies of
    the endpoint, each with the one that takes its place (FastAPI's `dependency_overrides`)."""

    def __init__(
        self, dependant: Dependant, overrides: Mapping[Any, Callable[..., Any]] | None = None
    ) -> None:
        self._calls: list[_Call] = []
        self._numbers: dict[Any, int] = {}
        self._overrides = overrides or {}
        self._add(dependant)
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
        given: list[dict[str, Any]] = []
        errors: list[Any] = []
        for call in self._calls:
            arguments = call.defaults.copy()
            for parameter in (*call.needed, *call.optional) if query or headers else call.needed:
                found = sources[parameter.place].get(parameter.alias)
                # One that is missing and has no default is refused by its type, which says what it expects.
                if found is not None or parameter.name not in call.defaults:
                    value, wrong = parameter.validate(found, loc=(parameter.place, parameter.alias))
                    arguments[parameter.name] = value
                    errors += wrong
            given.append(arguments)
        if errors:
            raise RequestValidationError(errors)
        values: list[Any] = []
        for call, arguments in zip(self._calls, given, strict=True):
            for name, number in call.inputs:
                arguments[name] = values[number]
            if call.request is not None:
                arguments[call.request] = request
            if call.response is not None:
                arguments[call.response] = response
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
            self._numbers[function] = len(self._calls)
            parameters = _parameters(dependant)
            defaults = {
                each.name: each.default for each in parameters if each.default is not PydanticUndefined
            }
            self._calls.append(
                _Call(
                    function,
                    tuple((name, number) for name, number in inputs if name is not None),
                    tuple(each for each in parameters if each.name not in defaults),
                    tuple(each for each in parameters if each.name in defaults),
                    defaults,
                    dependant.request_param_name,
                    dependant.response_param_name,
                )
            )
        return self._numbers[function]

    def _names(self, place: str) -> set[str]:
        return {
            each.alias
            for call in self._calls
            for each in (*call.needed, *call.optional)
            if each.place == place
        }

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
    return [
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

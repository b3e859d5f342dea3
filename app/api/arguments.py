"""Calls an endpoint with the arguments that it asks for, by FastAPI's description of them.

FastAPI would do so too, and find out anew with each request of what kind each parameter is: for a PUT, which has six of
them, that takes twice as long as all the rest that is done for it but its transaction (ADR 40).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any, Final

from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from pydantic_core import PydanticUndefined
from starlette.requests import Request
from starlette.responses import Response

_FAILED: Final = object()


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
    """Of a dependency or the endpoint. ``inputs``: argument to the number of the call that gives it."""

    function: Callable[..., Coroutine[Any, Any, Any]]
    inputs: tuple[tuple[str | None, int], ...]
    parameters: tuple[_Parameter, ...]
    request: str | None
    response: str | None


class Calls:
    """An endpoint with its dependencies: each is called once, after those that it needs."""

    def __init__(self, dependant: Dependant) -> None:
        self._calls: list[_Call] = []
        self._numbers: dict[Any, int] = {}
        self._add(dependant)

    async def answer(self, request: Request, response: Response) -> Any:
        """What the endpoint gives. ``response`` is for it to set headers.

        Raises:
            RequestValidationError: parameters are not valid, of all calls that did not need such a one.
        """
        sources = {"path": request.path_params, "query": request.query_params, "header": request.headers}
        values: list[Any] = []
        errors: list[Any] = []
        for call in self._calls:
            before = len(errors)
            arguments: dict[Any, Any] = {name: values[number] for name, number in call.inputs}
            for parameter in call.parameters:
                found = sources[parameter.place].get(parameter.alias)
                value: Any = parameter.default
                if found is not None:
                    value, wrong = parameter.validate(found, loc=(parameter.place, parameter.alias))
                    errors += wrong
                arguments[parameter.name] = value
            if len(errors) > before or _FAILED in arguments.values():
                values.append(_FAILED)
                continue
            if call.request is not None:
                arguments[call.request] = request
            if call.response is not None:
                arguments[call.response] = response
            arguments.pop(None, None)
            values.append(await call.function(**arguments))
        if errors:
            raise RequestValidationError(errors)
        return values[-1]

    def _add(self, dependant: Dependant) -> int:
        inputs = tuple((each.name, self._add(each)) for each in dependant.dependencies)
        function = dependant.call
        if function not in self._numbers:
            assert function is not None and iscoroutinefunction(function), f"{function} should be async"
            assert not dependant.body_params, f"{function}: a body is read by a dependency of its own"
            assert dependant.background_tasks_param_name is None, f"{function}: there are no background tasks"
            parameters = [
                _Parameter(
                    each.name,
                    place,
                    each.alias.replace("_", "-") if place == "header" else each.alias,
                    each.validate,
                    each.get_default(),
                )
                for place, listed in (
                    ("path", dependant.path_params),
                    ("query", dependant.query_params),
                    ("header", dependant.header_params),
                )
                for each in listed
            ]
            for parameter in parameters:
                # What is missing is told by who asks for it, who knows what is expected.
                assert parameter.place == "path" or parameter.default is not PydanticUndefined, parameter
            self._numbers[function] = len(self._calls)
            self._calls.append(
                _Call(
                    function,
                    inputs,
                    tuple(parameters),
                    dependant.request_param_name,
                    dependant.response_param_name,
                )
            )
        return self._numbers[function]

"""Reading headers and bodies strictly; each refusal names what was wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from fastapi import Depends
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import ClientDisconnect, Request

from app.api.errors import ApiError, bad_request
from app.api.held_bytes import claim
from app.api.limits import BODY_LIMIT_BYTES
from app.api.parameters import header_text
from app.api.schema.base import Expected
from app.model import sentences
from app.model.ids import is_id
from app.model.jobgraph import JobGraph
from app.model.sentences import shown
from app.model.strictjson import StrictTextError, decode_json_strict

_DECODED_AT_ONCE_BYTES = 16 * 1024
T = TypeVar("T")

# One thread: what is decoded is Python's work, and several would take the event loop's turns.
_decoders = ThreadPoolExecutor(1, "decode")


def header(request: Request, name: str) -> str | None:
    """The only value of a header."""
    wanted = name.lower().encode()
    values = [value for key, value in request.scope["headers"] if key == wanted]
    if not values:
        return None
    if len(values) > 1:
        raise bad_request(f"The header {name} is given twice.")
    return header_text(values[0])


async def read_body(request: Request, limit_bytes: int = BODY_LIMIT_BYTES) -> bytes:
    """The whole body.

    Raises:
        ApiError: 413 as soon as it is known to be longer than ``limit_bytes``, 503 if there is no room for it now.
    """
    return b"".join([chunk async for chunk in body_chunks(request, limit_bytes)])


async def keep_body(request: Request, limit_bytes: int) -> bytes:
    """The whole body, for one who may leave the answer to an endpoint: that reads it again."""
    # Starlette keeps it there too, and begins with it whenever the body is asked for.
    request._body = body = await read_body(request, limit_bytes)
    return body


async def body_chunks(request: Request, limit_bytes: int) -> AsyncGenerator[bytes, None]:
    """The body as it comes, with the limits of `read_body`."""
    announced = header(request, "content-length")
    size = int(announced) if announced is not None and announced.isdigit() else 0
    if size > limit_bytes:
        raise too_large(limit_bytes)
    # Room for all of it at once: several that are half read could each be in the way of the others.
    claim(request.scope, size)
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > limit_bytes:
                raise too_large(limit_bytes)
            claim(request.scope, size)
            yield chunk
    except ClientDisconnect:
        raise bad_request("The connection was closed before the whole body had arrived.") from None


async def decoded(decode: Callable[[bytes], T], body: bytes, decoders: Executor = _decoders) -> T:
    """What ``decode`` makes of ``body``: of a long one in a thread, so that others are answered meanwhile."""
    if len(body) <= _DECODED_AT_ONCE_BYTES:
        return decode(body)
    return await asyncio.get_running_loop().run_in_executor(decoders, decode, body)


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What ``work`` gives, which is cancelled when the client hangs up. The body has to be read before.

    Raises:
        ClientDisconnect: it did.
    """
    doing = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((doing, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise ClientDisconnect
        return doing.result()
    finally:
        for each in (doing, leaving):
            each.cancel()
        await asyncio.wait((doing, leaving))


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def too_large(limit_bytes: int) -> ApiError:
    # The connection stays open: the server passes over the rest, so that a client that sends before it reads
    # meets this answer and no broken connection.
    return ApiError(413, f"The body is too large: at most {limit_bytes} bytes are allowed.")


async def read_json_object(
    request: Request, parse: Callable[[dict[str, Any]], T], *, what: str, empty_ok: bool = False
) -> T:
    """What ``parse`` makes of the body, a JSON object that is strictly decoded. ``what`` names it in sentences."""
    body = await read_body(request)
    if not body.strip():
        if empty_ok:
            return parse({})
        raise bad_request(f"The request body is empty: {what} is expected.")

    def parsed(text: bytes) -> T:
        try:
            value = decode_json_strict(text)
        except StrictTextError as error:
            raise bad_request(*error.errors) from None
        if not isinstance(value, dict):
            raise bad_request(
                f"The request body should be a JSON object: {what} is expected, found {kind_of(value)}."
            )
        return parse(value)

    return await decoded(parsed, body)


def body_of(model: type[BaseModel], *, what: str, empty_ok: bool = False) -> Any:
    """The dependency that gives the body as a ``model``, whose fields say what is `Expected` of them."""

    async def read(request: Request) -> Any:
        return await read_json_object(request, partial(_parsed, model), what=what, empty_ok=empty_ok)

    return Depends(read)


def _parsed(model: type[BaseModel], document: dict[str, Any]) -> BaseModel:
    try:
        return model.model_validate(document, strict=True)
    except ValidationError as error:
        raise bad_request(*[_field_sentence(model, each) for each in error.errors()]) from None


def _field_sentence(model: type[BaseModel], error: ErrorDetails) -> str:
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    name, value = str(error["loc"][0]), error["input"]
    if error["type"] == "extra_forbidden":
        return f"The field {shown(name)} is not known: only {', '.join(fields)} are."
    what = next(each.what for each in fields[name].metadata if isinstance(each, Expected))
    if error["type"] == "missing":
        return f"The field {name} is missing: {what} is expected."
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return f"The field {name} should be {what}, found {shown(str(value)) if is_whole else kind_of(value)}."


def kind_of(value: object) -> str:
    """What a JSON value is, for a sentence."""
    return sentences.kind_of(value, array="an array", mapping="an object")


def by_vertex(
    entries: Mapping[str, Any],
    graph: JobGraph,
    parse: Callable[[str, Any], T],
    errors: list[str],
    *,
    what: str,
) -> dict[str, T]:
    """What ``parse`` makes of each entry, by vertex id; it gets the key too. Keys that are no vertex of ``graph`` are
    passed on: validation names them all. ``what`` they are, for the sentence about a vertex that is there twice."""
    found: dict[str, T] = {}
    for key, entry in entries.items():
        vertex_id = _vertex_id_of(key, graph)
        if vertex_id in found:
            errors.append(
                f"The {what} of job vertex {shown(key)} are given twice (its id and its name, or in two cases)."
            )
        else:
            found[vertex_id] = parse(key, entry)
    return found


def _vertex_id_of(key: str, graph: JobGraph) -> str:
    """The id that ``key`` means, an id or a unique name; ``key`` if it is neither."""
    lowered = key.lower()
    if lowered in graph.by_id:
        return lowered
    vertex = graph.by_name.get(key)
    if vertex is not None:
        return vertex.id
    return lowered if is_id(lowered) else key


def not_known(
    names: Iterable[str], known: Sequence[str], what: str = "The field", within: str = ""
) -> list[str]:
    """A sentence for each of ``names`` that is not ``known``; ``what`` comes before the name, ``within`` after it."""
    return [
        f"{what} {shown(name)}{within} is not known: only {' and '.join(known)} are."
        for name in names
        if name not in known
    ]

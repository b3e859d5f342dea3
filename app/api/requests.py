"""Reading requests strictly: ids, query parameters, headers, bodies; each refusal names what was wrong."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

from app.api.auth import PRINCIPAL
from app.api.errors import ApiError, bad_request
from app.api.held_bytes import claim
from app.model import sentences
from app.model.ids import InvalidId, normalize_id
from app.model.sentences import shown
from app.model.strictjson import StrictJsonError, decode_json_strict

BODY_LIMIT_BYTES = 1024 * 1024
_MAX_QUERY_PARAMETERS = 32
_DECODED_AT_ONCE_BYTES = 16 * 1024
T = TypeVar("T")

# One thread: what is decoded is Python's work, and several would take the event loop's turns.
_decoders = ThreadPoolExecutor(1, "decode")

_WHOLE_NUMBER = re.compile(r"[0-9]{1,18}\Z")


def requested_by(request: Request) -> str:
    """The authenticated name."""
    name: str = request.scope[PRINCIPAL]
    return name


def path_id(request: Request, name: str) -> str:
    """The id in the path under ``name``, in lower case."""
    text: str = request.scope["path_params"][name]
    try:
        return normalize_id(text)
    except InvalidId:
        raise bad_request(
            f"The path parameter {name} should be 32 hexadecimal digits, found {shown(text)}."
        ) from None


def query(request: Request, allowed: Collection[str] = ()) -> dict[str, str]:
    """The query parameters, each at most once and of a known name."""
    raw: bytes = request.scope["query_string"]
    if not raw:
        return {}
    try:
        pairs = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_QUERY_PARAMETERS
        )
    except (ValueError, UnicodeDecodeError):
        raise bad_request(
            f"The query cannot be read: at most {_MAX_QUERY_PARAMETERS} percent-encoded UTF-8 parameters are"
            " expected."
        ) from None
    found: dict[str, str] = {}
    errors: list[str] = []
    for name, value in pairs:
        if name not in allowed:
            known = ", ".join(sorted(allowed)) or "none"
            errors.append(f"The query parameter {shown(name)} is not known here; allowed: {known}.")
        elif name in found:
            errors.append(f"The query parameter {name} is given twice.")
        else:
            found[name] = value
    if errors:
        raise bad_request(*errors)
    return found


def boolean(parameters: dict[str, str], name: str) -> bool:
    """A true or false of the query; false when it is not given."""
    value = parameters.get(name, "false")
    if value not in ("true", "false"):
        raise bad_request(f"The query parameter {name} should be true or false, found {shown(value)}.")
    return value == "true"


def whole_number(parameters: dict[str, str], name: str, lowest: int, highest: int) -> int | None:
    """A whole number of the query within bounds; None when it is not given."""
    value = parameters.get(name)
    if value is None:
        return None
    if not _WHOLE_NUMBER.match(value) or not lowest <= int(value) <= highest:
        raise bad_request(
            f"The query parameter {name} should be a whole number between {lowest} and {highest}, found"
            f" {shown(value)}."
        )
    return int(value)


def one_of(
    parameters: dict[str, str], name: str, values: Callable[[str], T], allowed: Collection[str]
) -> T | None:
    """A value out of a fixed set; None when it is not given."""
    value = parameters.get(name)
    if value is None:
        return None
    if value not in allowed:
        raise bad_request(
            f"The query parameter {name} should be one of {', '.join(allowed)}, found {shown(value)}."
        )
    return values(value)


def names(parameters: dict[str, str], name: str) -> list[str] | None:
    """A comma-separated list; None when it is not given or empty, which means everything."""
    return [part for part in parameters.get(name, "").split(",") if part] or None


def header(request: Request, name: str) -> str | None:
    """The only value of a header as text: UTF-8 if it is that, else Latin-1."""
    wanted = name.lower().encode()
    values = [value for key, value in request.scope["headers"] if key == wanted]
    if not values:
        return None
    if len(values) > 1:
        raise bad_request(f"The header {name} is given twice.")
    raw: bytes = values[0]
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    return text.strip()


async def read_body(request: Request, limit_bytes: int = BODY_LIMIT_BYTES) -> bytes:
    """The whole body.

    Raises:
        ApiError: 413 as soon as it is known to be longer than ``limit_bytes``, 503 if there is no room for it now.
    """
    return b"".join([chunk async for chunk in body_chunks(request, limit_bytes)])


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
        except StrictJsonError as error:
            raise bad_request(*error.errors) from None
        if not isinstance(value, dict):
            raise bad_request(
                f"The request body should be a JSON object: {what} is expected, found {kind_of(value)}."
            )
        return parse(value)

    return await decoded(parsed, body)


def kind_of(value: object) -> str:
    """What a JSON value is, for a sentence."""
    return sentences.kind_of(value, array="an array", mapping="an object")

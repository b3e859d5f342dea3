"""The entries in the mailbox of a job: facts, which stay true, and requests, whose clients wait for an answer.

Idempotency-Keys: a repeated PUT with a known key gets the answer of the first one and changes nothing. The table
`idempotency` of the database remembers the keys of each job and their answers. How many, and for how long, is decided
by `app.worker.housekeeping.housekeeping` (settings `requests_max_count` and `history_max_age_days`).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app.model.value import value
from app.scheduler.adaptive.events import Event
from app.scheduler.adaptive.state import JobState
from app.store.writes import Write
from app.worker.refusals import StateConflict
from app.worker.views import RequirementsResult, Update


@value
class RequestDecision:
    """What a request decided, seeing the state that is current when its turn comes.

    ``event`` None: nothing is to be done. ``answer`` goes to the client once everything is durable.
    ``rows`` become durable with what follows from the event, and before that.
    """

    event: Event | None
    answer: Any = None
    rows: tuple[Write, ...] = ()


EventSource = Event | Callable[[JobState], Event | None]
"""An event, or what makes one of the state that is current when its turn comes."""


@dataclass(slots=True)
class Fact:
    """Something that happened. ``rows`` become durable with what follows from it."""

    source: EventSource
    rows: tuple[Write, ...]


@dataclass(slots=True)
class Request:
    """What a client asked for. ``future`` gets the answer once everything that it caused is durable."""

    decide: Callable[[JobState], RequestDecision]
    future: asyncio.Future[Any]
    key: IdempotencyKey | None = None


def answer_all(answers: list[tuple[Request, Any]]) -> None:
    for request, answer in answers:
        if not request.future.done():
            request.future.set_result(answer)


def refuse(request: Request, error: Exception) -> None:
    if not request.future.done():
        request.future.set_exception(error)


def refuse_all(answers: list[tuple[Request, Any]], error: Exception) -> None:
    for request, _ in answers:
        refuse(request, error)


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The text of a key, and the hash of the request that it was sent with."""

    key: str
    request_hash: str


def identity_of(update: Update) -> IdempotencyKey | None:
    """What makes ``update`` known again; None if it has no key."""
    if not update.idempotency_key:
        return None
    text = json.dumps(update.parts(), separators=(",", ":"))
    return IdempotencyKey(update.idempotency_key, hashlib.sha256(text.encode()).hexdigest())


def first_answer(key: IdempotencyKey, known: tuple[str, RequirementsResult]) -> RequirementsResult:
    """The answer that was given to the first request with ``key``. ``known``: its hash and its answer.

    Raises:
        StateConflict: that was another request.
    """
    request_hash, answer = known
    if request_hash != key.request_hash:
        raise StateConflict(
            f"Idempotency-Key {key.key!r} was used before for another request. Use a new key."
        )
    return answer

"""The entries in the mailbox of a job: facts, which stay true, and requests, whose clients wait for an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app.model.value import value
from app.scheduler.adaptive.events import Event
from app.scheduler.adaptive.state import JobState
from app.store.writes import Write
from app.worker.job.idempotency import IdempotencyKey

Answers = list[tuple["Request", Any]]


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

"""Idempotency-Keys: a repeated PUT with a known key gets the answer of the first one and changes nothing.

The table `idempotency` of the database remembers the keys of each job and their answers. How many, and for how long, is
decided by `app.worker.housekeeping.housekeeping` (settings `requests_max_count` and `history_max_age_days`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from app.worker.views import RequirementsResult, StateConflict


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The text of a key, and the hash of the request that it was sent with."""

    key: str
    request_hash: str


def request_hash_of(parts: list[object]) -> str:
    """Two requests with one Idempotency-Key are the same request if they have equal ``parts``."""
    return hashlib.sha256(json.dumps(parts, separators=(",", ":")).encode()).hexdigest()


class Keyed(Protocol):
    """A request that may have an Idempotency-Key."""

    @property
    def idempotency_key(self) -> str | None: ...


K = TypeVar("K", bound=Keyed)


def identity_of(request: K, hash_of: Callable[[K], str]) -> IdempotencyKey | None:
    """What makes ``request`` known again; None if it has no key."""
    key = request.idempotency_key
    return IdempotencyKey(key, hash_of(request)) if key else None


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

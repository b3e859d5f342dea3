"""Idempotency-Keys: a repeated PUT with a known key gets the answer of the first one and changes nothing.

The table `idempotency` of the database remembers the keys of each job and their answers. How many, and for how long, is
decided by `app.worker.housekeeping.housekeeping` (settings `requests_max_count` and `history_max_age_days`).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from app.worker.views import RequirementsResult, StateConflict, Update


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

"""The number of bytes of request bodies in memory, for all requests together."""

from __future__ import annotations

from typing import Final

from starlette.types import Scope

from app.api.errors import RETRY, ApiError
from app.api.limits import BODY_LIMIT_BYTES, FORM_LIMIT_BYTES

FORMS_LIMIT_BYTES: Final = 3 * FORM_LIMIT_BYTES
"""Three forms of the largest size. What is made of a body may for a moment be as large again."""
KEPT_FOR_SMALL_BYTES: Final = 16 * 1024 * 1024
"""Slow uploads of forms are in no other request's way."""
DRIVERS_LIMIT_BYTES: Final = 32 * 1024 * 1024
"""Of drivers' calls, whose bodies are read only after their secrets have been."""
FREE_BYTES: Final = 64 * 1024
"""Bytes of each body that are in memory before it is read."""

_HELD = "slotwise.held"


class HeldBytes:
    """What all requests hold: at most ``limit_bytes``, and ``kept_for_small_bytes`` more if their bodies are small."""

    def __init__(
        self, limit_bytes: int = FORMS_LIMIT_BYTES, kept_for_small_bytes: int = KEPT_FOR_SMALL_BYTES
    ) -> None:
        self.limit_bytes = limit_bytes
        self.kept_for_small_bytes = kept_for_small_bytes
        self.bytes = 0

    def watch(self, scope: Scope) -> None:
        """Let the request of ``scope`` claim bytes; `release` gives them back."""
        scope[_HELD] = (self, 0)

    def release(self, scope: Scope) -> None:
        self.bytes -= scope[_HELD][1]


def claim(scope: Scope, size_bytes: int) -> None:
    """Have room for a body of so many bytes, for as long as the request lasts.

    Raises:
        ApiError: 503 if there is none.
    """
    held: HeldBytes
    held, own_bytes = scope[_HELD]
    more_bytes = size_bytes - FREE_BYTES - own_bytes
    if more_bytes <= 0:
        return
    limit_bytes = held.limit_bytes + (held.kept_for_small_bytes if size_bytes <= BODY_LIMIT_BYTES else 0)
    if held.bytes + more_bytes > limit_bytes:
        raise ApiError(
            503,
            f"Other bodies are being read, and all together may have {limit_bytes} bytes: try again.",
            headers=RETRY,
        )
    held.bytes += more_bytes
    scope[_HELD] = (held, own_bytes + more_bytes)

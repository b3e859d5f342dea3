"""A cluster that cannot be asked what it has."""

from __future__ import annotations

import re
from datetime import UTC, datetime


def out_of_sight(what: str, since_ms: int, reason: str) -> str:
    """The sentence of an `Offer` on ``what`` not answering. ``since_ms`` stays while
    that lasts, so the sentence, and with it the offer, changes only when the reason does."""
    # What a URL has of names and passwords is nobody's business.
    reason = re.sub(r"//[^/@\s]*@", "//", reason)
    since = datetime.fromtimestamp(since_ms / 1000, UTC)
    return f"{what} cannot be asked since {since:%Y-%m-%d %H:%M:%S} UTC ({reason.rstrip('.')})."

"""A cluster that cannot be asked what it has."""

from __future__ import annotations

import re
from datetime import UTC, datetime


def out_of_sight(what: str, since_ms: int, reason: str) -> str:
    """The sentence of an `Offer` on ``what`` not answering. It is made once: offers change with the facts only."""
    # What a URL has of names and passwords is nobody's business.
    reason = re.sub(r"//[^/@\s]*@", "//", reason)
    since = datetime.fromtimestamp(since_ms / 1000, UTC)
    return f"{what} cannot be asked since {since:%Y-%m-%d %H:%M:%S} UTC ({reason.rstrip('.')})."

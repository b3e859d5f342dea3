"""A cluster that cannot be asked what it has."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime

from app.cluster.ports import ExecutorCluster, Offer


class Sight:
    """Whether ``what`` answers. ``away``: since when it does not, and why, in a sentence; empty while it does."""

    def __init__(self, what: str, now_ms: Callable[[], int]) -> None:
        self._what = what
        self._now_ms = now_ms
        self._since_ms = 0
        self.away = ""

    def lost(self, reason: str) -> None:
        """It does not answer, for the first time or still."""
        self._since_ms = self._since_ms or self._now_ms()
        self.away = out_of_sight(self._what, self._since_ms, reason)

    def found(self) -> bool:
        """It answers; whether it did not before."""
        was_away = bool(self.away)
        self.away, self._since_ms = "", 0
        return was_away


async def watch_offers(
    cluster: ExecutorCluster, is_ours: Callable[[str], bool], tell: Callable[[Offer], None]
) -> None:
    """Look at ``cluster`` again and again, and tell what is other than before."""
    last: Offer | None = None

    async def once() -> None:
        nonlocal last
        current = await cluster.look(is_ours)
        if current != last:
            tell(current)
            last = current

    await cluster.rounds.go("looks at the cluster", once, every_s=cluster.poll_s)


def out_of_sight(what: str, since_ms: int, reason: str) -> str:
    """The sentence of an `Offer` on ``what`` not answering. ``since_ms`` stays while
    that lasts, so the sentence, and with it the offer, changes only when the reason does."""
    # What a URL has of names and passwords is nobody's business.
    reason = re.sub(r"//[^/@\s]*@", "//", reason)
    since = datetime.fromtimestamp(since_ms / 1000, UTC)
    return f"{what} cannot be asked since {since:%Y-%m-%d %H:%M:%S} UTC ({reason.rstrip('.')})."

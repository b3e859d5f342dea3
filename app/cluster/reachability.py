"""Reachability of a cluster, and the periodic read of its slots."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime

from app.cluster.ports import ExecutorCluster, Offer


class Reachability:
    """Whether ``what`` answers. ``unreachable``: a sentence on since when it does not and why; empty while it does."""

    def __init__(self, what: str, now_ms: Callable[[], int]) -> None:
        self._what = what
        self._now_ms = now_ms
        self._since_ms = 0
        self.unreachable = ""

    def lost(self, reason: str) -> None:
        """It does not answer. The sentence changes only if ``reason`` does."""
        self._since_ms = self._since_ms or self._now_ms()
        # Names and passwords in a URL are not shown.
        reason = re.sub(r"//[^/@\s]*@", "//", reason).rstrip(".")
        since = datetime.fromtimestamp(self._since_ms / 1000, UTC)
        self.unreachable = f"{self._what} cannot be asked since {since:%Y-%m-%d %H:%M:%S} UTC ({reason})."

    def found(self) -> bool:
        """It answers. True if it did not before."""
        was_unreachable = bool(self.unreachable)
        self.unreachable, self._since_ms = "", 0
        return was_unreachable


async def watch_offers(
    cluster: ExecutorCluster, is_ours: Callable[[str], bool], tell: Callable[[Offer], None]
) -> None:
    """Poll ``cluster``, and report every offer that differs from the one before."""
    last: Offer | None = None

    async def once() -> None:
        nonlocal last
        current = await cluster.look(is_ours)
        if current != last:
            tell(current)
            last = current

    await cluster.periodic.run("looks at the cluster", once, every_s=cluster.poll_s)

"""Whether something takes too long for the length of a text, on fast machines and on slow and busy ones."""

from __future__ import annotations

from collections.abc import Callable

SLOWER = 5.0
"""Than a fair machine, the slowest one that tests are run on may be."""
GROWTH_MAX = 40.0
"""For ten times the length: what is linear takes ten times as long, and what is quadratic a hundred times."""
_RUNS = 3


def too_slow(seconds_of: Callable[[int], float], length: int, limit_s: float) -> str | None:
    """What is wrong if ``seconds_of`` this length passes ``limit_s`` and a slow machine is no excuse for it."""

    def fastest(length: int, enough_s: float) -> float:
        found = float("inf")
        for _ in range(_RUNS):
            found = min(found, took := seconds_of(length))
            if found <= enough_s or took > SLOWER * limit_s:
                break
        return found

    took = fastest(length, limit_s)
    if took <= limit_s:
        return None
    tenth = fastest(length // 10, 0.0)
    if took <= SLOWER * limit_s and took < GROWTH_MAX * tenth:
        return None
    return f"{took:.3f} s, and {tenth:.4f} s for a tenth of the length"

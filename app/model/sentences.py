"""Users' values and durations in sentences."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def shown(text: str) -> str:
    """Foreign text, fit for a sentence."""
    return repr(text if len(text) <= 80 else text[:77] + "...")


def kind_of(value: object, *, array: str = "a list", mapping: str = "a mapping") -> str:
    """What a value of a document is, for a sentence. JSON and YAML have different words for the last two."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"the number {value}" if abs(value) < 1e30 else "a huge number"
    if isinstance(value, str):
        return f"the text {shown(value)}"
    return array if isinstance(value, list | tuple) else mapping


def hint(name: str, known: Iterable[str]) -> str:
    """A guess at what ``name`` should have been, as a sentence with a leading blank; empty if nothing is near."""
    candidates = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name[:80].lower(), candidates, n=1)
    return f" Did you mean {candidates[close[0]]!r}?" if close else ""


def ended(text: str) -> str:
    """Foreign text that another sentence follows."""
    text = text.rstrip()
    return text if text.endswith((".", "!", "?")) else f"{text}."


def duration_in_words(duration_ms: int) -> str:
    """`850 ms`, `4.2 s`, `95 s`, `12 min`, `3.5 h`, `3 days`. What is over by then takes `0 ms`."""
    duration_ms = max(0, duration_ms)
    if duration_ms < 1_000:
        return f"{duration_ms} ms"
    if duration_ms < 10_000:
        return f"{duration_ms / 1000:.1f} s"
    if duration_ms < 120_000:
        return f"{duration_ms / 1000:.0f} s"
    if duration_ms < 7_200_000:
        return f"{duration_ms / 60_000:.0f} min"
    if duration_ms < 172_800_000:
        return f"{round(duration_ms / 3_600_000, 1):g} h"
    return f"{round(duration_ms / 86_400_000, 1):g} days"

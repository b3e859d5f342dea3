"""Durations in sentences."""

from __future__ import annotations

import pytest

from app.model.sentences import duration_in_words


@pytest.mark.parametrize(
    ("duration_ms", "words"),
    [
        (-5, "0 ms"),
        (850, "850 ms"),
        (4_200, "4.2 s"),
        (95_000, "95 s"),
        (720_000, "12 min"),
        (12_600_000, "3.5 h"),
        (36_000_000, "10 h"),
        (259_200_000, "3 days"),
    ],
)
def test_durations_in_words(duration_ms: int, words: str) -> None:
    assert duration_in_words(duration_ms) == words

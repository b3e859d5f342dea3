"""Lines by their numbers are those that Python would split, wherever a chunk ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cluster.driverlogs import open_log
from app.worker.requests import log_lines
from app.worker.requests.log_lines import find_lines

BEFORE, BEHIND = b"another attempt\n", b"the next attempt\n"


def found(
    path: Path, content: bytes, first: int | None, most: int, *, behind: int = 0, over: bool = True
) -> tuple[bytes, int, int]:
    """The lines, the number of the first one, and how many there are."""
    path.write_bytes(BEFORE + content + BEHIND)
    with open_log(path) as opened:
        bounds = (len(BEFORE), len(BEFORE) + len(content))
        lines = find_lines(opened, bounds, first, most, behind=behind, is_over=over)
        return opened.read(lines.begin, lines.end), lines.first, lines.lines


@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 7, 1 << 20])
@pytest.mark.parametrize(
    "content", [b"", b"\n", b"a", b"a\n", b"\n\na\n", b"one\ntwo\n\nfour\nfive", b"x" * 50 + b"\n"]
)
def test_lines_are_found_by_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, chunk_bytes: int
) -> None:
    monkeypatch.setattr(log_lines, "_CHUNK_BYTES", chunk_bytes)
    lines = content.splitlines(keepends=True)
    for first in range(len(lines) + 2):
        for most in (1, 2, 100):
            expected = (b"".join(lines[first : first + most]), first, len(lines))
            assert found(tmp_path / "driver-1.log", content, first, most) == expected
    for most in (1, 2, 100):
        last = max(0, len(lines) - most)
        assert found(tmp_path / "driver-1.log", content, None, most) == (
            b"".join(lines[last:]),
            last,
            len(lines),
        )


def test_what_comes_behind_the_log_counts_among_the_last_lines(tmp_path: Path) -> None:
    assert found(tmp_path / "driver-1.log", b"a\nb\nc\n", None, 3, behind=2) == (b"c\n", 2, 3)
    assert found(tmp_path / "driver-1.log", b"a\nb\nc\n", None, 2, behind=5) == (b"", 6, 3)


def test_a_line_that_is_being_written_is_none_yet(tmp_path: Path) -> None:
    assert found(tmp_path / "driver-1.log", b"a\nb", None, 9, over=False) == (b"a\nb", 0, 1)
    assert found(tmp_path / "driver-1.log", b"a\nb", 0, 1, over=False) == (b"a\n", 0, 1)


def test_lines_that_are_too_long_are_fewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "MOST_BYTES", 5)
    assert found(tmp_path / "driver-1.log", b"one\ntwo\nthree\n", 0, 3) == (b"one\nt", 0, 3)

"""Parts of the log of an executor, which the cluster gives as text: borders within characters, secrets, odd bytes."""

from __future__ import annotations

import pytest

from app.cluster.ports import ExecutorLog
from app.worker.requests.executor_logs import _bytes_of
from app.worker.requests.log_parts import LogPart, Window, part_of

SECRET = "pässwört-über-alles"
LOG = f"one\nkey {SECRET} end\nzwei ü€𝄞\n{SECRET}\nlast".encode()
REPLACED = LOG.replace(b"zwei", "\ufffd zwei".encode())
ODD = b"caf\xe9 one\n" + LOG + b"\n\xff\xfe and \xfc\n"


def window(log: bytes, begin: int, size: int, *, is_growing: bool = False) -> Window:
    """Of what a worker gives."""
    text = log[begin : begin + size]
    found = ExecutorLog(text.decode(errors="replace"), begin, begin + len(text), len(log))
    return Window(_bytes_of(found), begin, len(log), is_over=False, is_growing=is_growing)


def part(log: bytes, offset: int, limit: int, around: int = 4 * len(SECRET)) -> LogPart:
    begin = max(0, offset - around)
    return part_of(window(log, begin, offset - begin + limit + around), offset, limit, (SECRET,))


def whole(log: bytes, limit: int) -> str:
    """As somebody reads it who goes on from part to part."""
    texts, at = [], 0
    while at < len(log):
        one = part(log, at, limit)
        assert one.begin == at < one.next and one.size == len(log)
        texts.append(one.text)
        at = one.next
    return "".join(texts)


@pytest.mark.parametrize("log", [LOG, REPLACED, ODD])
def test_no_part_shows_a_piece_of_a_secret(log: bytes) -> None:
    pieces = {SECRET[at : at + 4] for at in range(len(SECRET) - 3)}
    for limit in (1, 2, 7, 20, len(log)):
        for offset in range(len(log) + 1):
            text = part(log, offset, limit).text
            assert not any(piece in text for piece in pieces), (offset, limit, text)


@pytest.mark.parametrize("log", [LOG, REPLACED, ODD])
def test_parts_make_up_the_whole(log: bytes) -> None:
    hidden = log.decode(errors="replace").replace(SECRET, "******")
    for limit in range(1, len(log) + 1):
        assert whole(log, limit) == hidden, limit


def test_a_part_that_begins_within_a_character_begins_with_it() -> None:
    at = LOG.index("€".encode())
    for inside in (1, 2):
        one = part(LOG, at + inside, 100)
        assert one.text.startswith("€𝄞\n") and one.begin == at


def test_a_line_that_is_still_written_is_held_back() -> None:
    log = LOG + b" postgres://user:s3cr"
    begin = log.index(b"last")
    known = ("s3cretpassword",)
    held = part_of(window(log, 0, len(log), is_growing=True), begin, 100, known)
    assert (held.text, held.next, held.size) == ("", begin, len(log))
    shown = part_of(window(log, 0, len(log), is_growing=True), begin - 3, 100, known)
    assert shown.text.endswith("\n") and shown.next == begin
    assert part_of(window(log, 0, len(log)), begin, 100, known).next == len(log)

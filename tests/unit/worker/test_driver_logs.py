"""Parts of the log of an attempt: whole lines, true places, and no secret at any of their ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from app.cluster.driverlogs import OpenLog
from app.worker.refusals import BeyondLog, LogGone, Unavailable
from app.worker.requests import driver_logs, log_parts
from app.worker.requests.driver_logs import _Stretch
from app.worker.requests.log_parts import LogPart, around_bytes, part_of
from app.worker.views import JobView
from tests.unit.worker.fakes import Rig, rig_on
from tests.unit.worker.test_control_plane import restarting

SECRET = "hunter2-\u00e4-of-the-job"
LATE_S = 60.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "driver-1.log"


def read(
    path: Path, offset: int, size: int = 1 << 16, *, begin: int = 0, end: int | None = None, over: bool = True
) -> LogPart:
    window = _Stretch(path, begin, end, over).window(offset, size, around_bytes((SECRET,)))
    return part_of(window, offset, size, (SECRET,))


def grown_old(path: Path) -> None:
    then_s = time.time() - LATE_S
    os.utime(path, (then_s, then_s))


def test_a_part_ends_with_a_line_and_says_where_the_next_begins(path: Path) -> None:
    path.write_bytes(b"one\ntwo\nthree\n")
    first = read(path, 0, 9)
    assert (first.text, first.next, first.is_complete) == ("one\ntwo\n", 8, False)
    rest = read(path, first.next, 9)
    assert (rest.text, rest.next, rest.is_complete) == ("three\n", 14, True)
    assert read(path, 14).text == ""
    with pytest.raises(BeyondLog, match="should be at most 14, where the log ends now, found 15"):
        read(path, 15)


def test_a_line_that_is_being_written_is_shown_when_it_has_its_end_or_stands_still(path: Path) -> None:
    path.write_bytes(b"one\ntw")
    part = read(path, 0, over=False)
    assert (part.text, part.next, part.is_complete) == ("one\n", 4, False)
    assert read(path, 4, over=False).next == 4
    grown_old(path)
    part = read(path, 4, over=False)
    assert (part.text, part.next, part.is_complete) == ("tw", 6, False)
    path.write_bytes(b"one\ntwo\n")
    assert read(path, 6, over=False).text == "o\n"
    path.write_bytes(b"one\ntw")
    assert (read(path, 0).text, read(path, 0).is_complete) == ("one\ntw", True)


def test_a_line_without_an_end_comes_in_parts(path: Path) -> None:
    path.write_bytes(("\u00e4" * 1_000).encode())
    at, text = 0, ""
    while not (part := read(path, at, 333)).is_complete:
        assert at < part.next <= at + 333
        text, at = text + part.text, part.next
    assert text + part.text == "\u00e4" * 1_000


@pytest.mark.parametrize("size", [1, 2, 3])
def test_there_is_room_for_a_character_at_least(path: Path, size: int) -> None:
    path.write_bytes("\u20ac\u00e4x\n".encode() + b"\x80" * 9)
    at, text = 0, ""
    while not (part := read(path, at, size)).is_complete:
        assert part.next > at
        text, at = text + part.text, part.next
    assert (text + part.text).startswith("\u20ac\u00e4x\n\ufffd")


@pytest.mark.parametrize("over", [True, False])
def test_no_place_to_begin_or_end_at_shows_part_of_a_secret(path: Path, over: bool) -> None:
    line = f"INFO url=postgresql://me:pw-of-nobody@db/x and {SECRET} here\n".encode()
    path.write_bytes(line * 3)
    for offset in range(len(line), 2 * len(line)):
        for size in (7, 2 * len(line)):
            text = read(path, offset, size, over=over).text
            for secret in (SECRET, "pw-of-nobody"):
                for first in range(0, len(secret) - 4, 3):
                    assert secret[first : first + 4] not in text, (offset, size, text)


def test_a_log_of_gigabytes_is_not_read_whole(path: Path) -> None:
    with open(path, "wb") as file:
        file.seek(5 << 30)
        file.write(b"\nthe end\n")
    begun_s = time.monotonic()
    assert read(path, (5 << 30) + 1).text == "the end\n"
    assert len(read(path, 1 << 30).text) == 1 << 16
    assert time.monotonic() - begun_s < 5


def test_bytes_that_are_no_text_are_marked_and_hide_nothing(path: Path) -> None:
    path.write_bytes(b"caf\xe9 \xff\x00 " + SECRET.encode() + b"\nlast\n")
    assert read(path, 0).text == "caf\ufffd \ufffd\x00 ******\nlast\n"
    assert read(path, 10, 5).text.startswith("******") or "hunter" not in read(path, 10, 5).text


def test_what_was_cut_off_is_said_and_places_stay(path: Path) -> None:
    path.write_bytes(b"... 100 bytes were cut off here\nlater\n")
    part = read(path, 10)
    assert (part.text, part.next) == ("... 90 bytes were cut off here\nlater\n", 106)
    assert read(path, 102).text == "ter\n"


def test_an_attempt_of_which_all_was_cut_off_ends_there(path: Path) -> None:
    path.write_bytes(b"... 100000 bytes were cut off here\nof the next attempt\n")
    part = read(path, 4, begin=10, end=50)
    assert (part.text, part.next, part.is_complete) == ("... 36 bytes were cut off here\n", 40, True)
    assert read(path, 40, begin=10, end=50) == LogPart("", 40, 40, is_complete=True)
    with pytest.raises(BeyondLog, match="at most 40"):
        read(path, 41, begin=10, end=50)


def test_where_nothing_is_new_nobody_looks_for_secrets(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_parts, "part_without_secrets", None)
    path.write_bytes(b"one\ntw")
    assert read(path, 4, over=False) == LogPart("", 4, 4, is_complete=False)
    assert read(path, 6) == LogPart("", 6, 6, is_complete=True)


def test_who_follows_a_log_in_which_nothing_is_new_reads_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(b"one\ntwo\n")
    assert read(path, 4, over=False).text == "two\n"
    monkeypatch.setattr(OpenLog, "read", None)
    assert read(path, 8, over=False) == LogPart("", 8, 8, is_complete=False)


def test_attempts_of_one_driver_have_a_part_of_its_log_each(path: Path) -> None:
    path.write_bytes(b"first\nsecond, unended" + b"third\n")
    one, two = read(path, 0, end=21), read(path, 0, begin=21)
    assert (one.text, one.next, one.is_complete) == ("first\nsecond, unended", 21, True)
    assert (two.text, two.next) == ("third\n", 6)
    with pytest.raises(BeyondLog, match="at most 21"):
        read(path, 22, end=21)


def test_a_log_that_was_emptied_is_told_by_its_end(path: Path) -> None:
    path.write_bytes(b"")
    assert read(path, 0).is_complete
    with pytest.raises(BeyondLog, match="at most 0"):
        read(path, 6)


async def is_gone() -> bool:
    return True


async def still_there() -> bool:
    return False


def logs_to(rig: Rig, log: Path) -> None:
    rig.host.prepare = lambda driver: setattr(
        driver, "ref", replace(driver.ref, lock_file=str(log.with_suffix(".lock")))
    )


async def test_where_it_is_not_known_where_an_attempt_begins_its_log_and_the_one_before_are_not_shown(
    sqlite_url: str, tmp_path: Path
) -> None:
    log = tmp_path / "driver.log"
    async with rig_on(sqlite_url, tmp_path) as rig:
        logs_to(rig, log)
        job = await restarting(rig)
        log.mkdir()
        await rig.report(job, "stopped", driver_alive=True)
        await rig.assigned(2)
        log.rmdir()
        log.write_bytes(b"of both\n")
        views = await rig.plane.logs.attempts(job)
        assert [(view.row.log_from, view.log_bytes) for view in views] == [(None, None), (0, None)]
        for number in (1, 2):
            with pytest.raises(LogGone, match="not known where the log of attempt"):
                await rig.plane.logs.read(rig.plane.job(job), number, 0, 1_000, still_there)


async def test_who_follows_a_log_that_never_stands_still_is_sent_away_too(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_logs, "_LOOK_EVERY_S", -1.0)
    log = tmp_path / "driver.log"
    log.write_bytes(b"line\n" * 100_000)
    async with rig_on(sqlite_url, tmp_path) as rig:
        logs_to(rig, log)
        job = await restarting(rig)
        logs, view = rig.plane.logs, rig.plane.job(job)
        one_at_a_time = asyncio.Semaphore(1)
        monkeypatch.setattr(logs, "_followers", one_at_a_time)
        asked = 0

        def job_of() -> JobView:
            nonlocal asked
            asked += 1
            return view

        async with contextlib.aclosing(logs.follow(job_of, 1, 0)) as parts:
            for turn in range(1, 4):
                assert len((await anext(parts)).text) > 60_000
                assert asked == turn + 1
            monkeypatch.setattr(logs, "_is_closing", lambda: True)
            with pytest.raises(Unavailable, match="stopping"):
                await anext(parts)
        assert not one_at_a_time.locked()


async def test_who_follows_a_log_in_which_nothing_comes_is_sent_away_in_the_end(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_logs, "_QUIET_MAX_S", -1.0)
    log = tmp_path / "driver.log"
    log.write_bytes(b"line\n")
    async with rig_on(sqlite_url, tmp_path) as rig:
        logs_to(rig, log)
        job = await restarting(rig)
        parts = rig.plane.logs.follow(lambda: rig.plane.job(job), 1, 0)
        assert (await anext(parts)).text == "line\n"
        assert (await anext(parts)).text == ""
        with pytest.raises(Unavailable, match="Nothing was logged for"):
            await anext(parts)


async def test_no_more_read_at_once_than_the_server_can_bear_and_none_goes_on_for_nobody(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "driver.log"
    log.write_bytes(b"line\n" * 100_000)
    async with rig_on(sqlite_url, tmp_path) as rig:
        logs_to(rig, log)
        job = await restarting(rig)
        assert (await rig.plane.logs.read(rig.plane.job(job), 1, 0, 300_000, still_there)).next > 200_000
        assert (await rig.plane.logs.read(rig.plane.job(job), 1, 0, 300_000, is_gone)).next <= 1 << 16
        monkeypatch.setattr(rig.plane.logs, "_readers", asyncio.Semaphore(0))
        with pytest.raises(Unavailable, match="16 clients read logs"):
            await rig.plane.logs.read(rig.plane.job(job), 1, 0, 300_000, still_there)


async def test_a_driver_that_takes_the_next_attempt_logs_each_for_itself(
    sqlite_url: str, tmp_path: Path
) -> None:
    log = tmp_path / "driver.log"
    async with rig_on(sqlite_url, tmp_path) as rig:
        logs_to(rig, log)
        log.write_bytes(b"of the first\n")
        job = await restarting(rig)
        first = rig.driver
        await rig.report(job, "stopped", driver_alive=True)
        assert await rig.assigned(2) is first
        log.write_bytes(b"of the first\nof the second\n")
        await rig.bring_up(job, 2)
        one, two = [
            await rig.plane.logs.read(rig.plane.job(job), number, 0, 1_000, still_there) for number in (1, 2)
        ]
        assert (one.text, one.is_complete) == ("of the first\n", True)
        assert (two.text, two.is_complete) == ("of the second\n", False)
        newest, oldest = await rig.plane.logs.attempts(job)
        assert (newest.log_bytes, oldest.log_bytes) == (14, 13)
        assert (oldest.row.log_from, newest.row.log_from) == (0, 13)
        assert (oldest.row.ending, newest.row.ending) == ("STOPPED", None)
        assert dict(newest.row.parallelism or ()) == dict(rig.plane.job(job).state.plan.parallelism)  # type: ignore[union-attr]

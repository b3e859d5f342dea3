"""Bells between servers of one data directory."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.worker.slots.doorbell import Doorbells


async def test_who_listens_is_rung_at_and_nobody_else(tmp_path: Path) -> None:
    # Longer than the name of a socket may be.
    directory = tmp_path / ("long" * 30)
    directory.mkdir()
    rung: dict[int, asyncio.Event] = {1: asyncio.Event(), 2: asyncio.Event()}
    first, second = Doorbells(directory, 1), Doorbells(directory, 2)
    first.listen(rung[1].set)
    second.listen(rung[2].set)
    try:
        first.ring([2, 3])
        async with asyncio.timeout(60):
            await rung[2].wait()
        assert not rung[1].is_set()
        second.ring([1])
        async with asyncio.timeout(60):
            await rung[1].wait()
    finally:
        second.close()
        first.ring([2])
        first.close()
    assert list(directory.iterdir()) == []


async def test_a_bell_that_was_left_behind_is_replaced(tmp_path: Path) -> None:
    rung = asyncio.Event()
    (tmp_path / "seat-1.bell").write_text("left")
    bells, other = Doorbells(tmp_path, 1), Doorbells(tmp_path, 2)
    other.listen(lambda: None)
    bells.listen(rung.set)
    try:
        for _ in range(1000):
            other.ring([1])
        async with asyncio.timeout(60):
            await rung.wait()
    finally:
        bells.close()
        other.close()


async def test_without_a_socket_nobody_rings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_args: object) -> None:
        raise OSError(24, "Too many open files")

    bells = Doorbells(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr("app.worker.slots.doorbell.socket.socket", none_left)
        bells.listen(lambda: None)
    bells.ring([2])
    bells.close()


async def test_without_a_directory_nobody_rings(tmp_path: Path) -> None:
    bells = Doorbells(tmp_path / "none", 1)
    bells.listen(lambda: None)
    bells.ring([1, 2])
    bells.close()

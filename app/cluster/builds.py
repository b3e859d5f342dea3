"""Builds that are made once and kept: environments and packages of jobs, each in a directory of the cache."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

from app import filelocks
from app.cluster.driveruser import DriverUser
from app.cluster.environments import EnvironmentRefused
from app.durablefiles import remove_tree, write_whole


class Builds:
    """Directories below ``directory``, one per key. A build counts once it is noted beside its directory, so half a
    build never does. ``user``: whom drivers run as; builds run code of others, so they belong to that user."""

    def __init__(self, directory: Path, user: DriverUser | None) -> None:
        self._directory = directory
        self._user = user
        self._locks: dict[str, asyncio.Lock] = {}

    async def once(self, key: str, build: Callable[[Path], list[str]]) -> list[str]:
        """What ``build`` gave when it made the directory of ``key``, now or before; whoever asks meanwhile waits.

        Raises:
            EnvironmentRefused: it cannot be built. Nothing is left of it.
        """
        async with self._locks.setdefault(key, asyncio.Lock()):
            try:
                return await asyncio.to_thread(self._once, key, build)
            except OSError as error:
                raise EnvironmentRefused(f"environment: it cannot be kept in the cache: {error}.") from error

    def _once(self, key: str, build: Callable[[Path], list[str]]) -> list[str]:
        note = self._directory / f"{key}.json"
        if (built := _read(note)) is not None:
            return built
        self._directory.mkdir(parents=True, exist_ok=True)
        if self._user is not None:
            self._user.let_through(self._directory)
        # Of several servers that share the cache, one builds.
        fd = filelocks.lock(self._directory / f"{key}.lock", wait=True)
        assert fd is not None
        try:
            if (built := _read(note)) is not None:
                return built
            place = self._directory / key
            remove_tree(place)
            place.mkdir(mode=stat.S_IRWXU)
            if self._user is not None:
                self._user.give_directory(place)
            try:
                built = build(place)
            except BaseException:
                remove_tree(place)
                raise
            write_whole(note, json.dumps(built).encode())
            return built
        finally:
            os.close(fd)


def _read(note: Path) -> list[str] | None:
    """What was built, if it is there still: caches are emptied by hand."""
    try:
        built = [str(each) for each in json.loads(note.read_text(encoding="utf-8"))]
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return built if all(os.path.exists(each) for each in built) else None

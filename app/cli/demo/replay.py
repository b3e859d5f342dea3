"""Files that arrive one after another, as in production."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType


class Replay:
    """While it is entered, moves the files of a folder into another one of the same file system, in the order of their
    names and evenly over a time. Each appears whole; what is not moved when it is left stays where it is."""

    def __init__(self, source: Path, target: Path, seconds: float) -> None:
        self._files = sorted(source.iterdir())
        self._target = target
        self._pause_s = seconds / max(1, len(self._files))
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="replay", daemon=True)

    def __enter__(self) -> Replay:
        self._target.mkdir(parents=True, exist_ok=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        for file in self._files:
            file.rename(self._target / file.name)
            if self._stopped.wait(self._pause_s):
                return

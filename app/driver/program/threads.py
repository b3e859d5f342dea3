"""The threads of a program: whether one works, or waits for something."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

from app.driver.program.places import Places

_POLL_S = 0.2
# Between two lines of a program there is less, but for what it waits for.
_IDLE_S = 8.0
# The function of Py4J in which a call of Java's runs.
_CALLED = "_call_proxy"

_Position = tuple[int, int, int]


class ProgramThreads:
    """The threads in which code of the program is, or has called what is."""

    def __init__(self, places: Places) -> None:
        self._places = places

    def await_idle(self, may_be: Callable[[], bool], over: Callable[[], bool] = lambda: False) -> None:
        """Until all of them have stood still for a while, as long as ``may_be``; or until it is ``over``."""
        seen: dict[int, tuple[_Position, float]] = {}
        while not over():
            still_s = self._still_s(seen)
            if still_s and all(each >= _IDLE_S for each in still_s.values()):
                if may_be():
                    return
                seen.clear()
            time.sleep(_POLL_S)

    def call_when_idle(
        self, may_be: Callable[[], bool], over: Callable[[], bool], then: Callable[[], object]
    ) -> None:
        """``then``, in a thread of its own, once that is so."""

        def watch() -> None:
            self.await_idle(may_be, over)
            then()

        threading.Thread(target=watch, name="waits", daemon=True).start()

    def _still_s(self, seen: dict[int, tuple[_Position, float]]) -> dict[int, float]:
        """For how long each thread that waits for no query has been where it is; ``seen`` is kept between two looks."""
        now = time.monotonic()
        found = {}
        for ident, frame in sys._current_frames().items():
            if self._places.of_frame(frame) is None or is_of_spark(frame):
                continue
            inner = frame
            while inner.f_back is not None and self._places.named(inner.f_code.co_filename) is None:
                inner = inner.f_back
            position = (id(frame.f_code), id(inner), inner.f_lasti)
            before = seen.get(ident)
            since = before[1] if before is not None and before[0] == position else now
            found[ident] = (position, since)
        seen.clear()
        seen.update(found)
        return {ident: now - since for ident, (_, since) in found.items()}


def is_of_spark(frame: FrameType | None) -> bool:
    """Whether Spark has called what runs there, such as a function for each batch: it comes and goes with batches."""
    while frame is not None:
        if frame.f_code.co_name == _CALLED:
            return True
        frame = frame.f_back
    return False

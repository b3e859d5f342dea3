"""An asyncio event loop on virtual time: waiting costs nothing, and every run with a seed is the same run.

Nothing in it does I/O: when nothing is ready to run, the clock jumps to the next timer. A program that waits for
something that can never happen is a deadlock, which real loops hide behind a hang; here it raises.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Deadlock(RuntimeError):
    """Everything waits and no timer is armed."""


class _NoSelector(selectors.BaseSelector):
    """A selector without files: a select that would wait lets virtual time pass instead."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop = loop
        self._keys: dict[int, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, 0, events, data)
        self._keys[id(fileobj)] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(id(fileobj))

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Deadlock("every task waits for something that nothing will bring about")
        if timeout > 0:
            self._loop.advance(timeout)
        return []

    def get_map(self) -> Any:
        return self._keys


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """``loop.time()`` is virtual seconds since the start."""

    def __init__(self) -> None:
        self._virtual_s = 0.0
        self.blocking_s: Callable[[], float] = lambda: 0.001
        super().__init__(_NoSelector(self))

    def time(self) -> float:
        return self._virtual_s

    def advance(self, seconds: float) -> None:
        self._virtual_s += seconds

    def run_in_executor(self, _executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """No threads: the work is done at once, and its outcome is told ``blocking_s()`` later."""
        future: asyncio.Future[T] = self.create_future()
        try:
            result = func(*args)
        except Exception as error:
            self.call_later(self.blocking_s(), _tell, future, None, error)
        else:
            self.call_later(self.blocking_s(), _tell, future, result, None)
        return future

    def _make_self_pipe(self) -> None:  # no threads talk to this loop
        pass

    def _close_self_pipe(self) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def pending_timers(self) -> int:
        """Timers that are still to fire."""
        scheduled: list[Any] = self._scheduled  # type: ignore[attr-defined]
        heapq.heapify(scheduled)
        return sum(1 for handle in scheduled if not handle.cancelled())


def _tell(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def run_virtual(work: Coroutine[Any, Any, T]) -> tuple[T, float]:
    """Run ``work`` to its end; its result, and the virtual seconds that passed."""
    loop = VirtualTimeLoop()
    try:
        asyncio.set_event_loop(loop)
        result = loop.run_until_complete(work)
        for task in asyncio.all_tasks(loop):
            task.cancel()
        return result, loop.time()
    finally:
        asyncio.set_event_loop(None)
        loop.close()

"""SIGTERM, as the program handles it: the driver's own handler stays in its place, and calls the program's."""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any

_usual_signal: Any = signal.signal
_usual_getsignal: Any = signal.getsignal


class TermSignal:
    """The handler that the program has set. It is called in the main thread."""

    def __init__(self) -> None:
        self._handler: Any = signal.SIG_DFL

    def install(self) -> None:
        """From here on `signal.signal` and `getsignal` tell of the program's handler."""
        module: Any = signal

        def set_handler(signalnum: int, handler: Any) -> Any:
            is_one = callable(handler) or handler in (signal.SIG_DFL, signal.SIG_IGN)
            if signalnum != signal.SIGTERM or not is_one or not _is_main():
                # The last two are errors, which Python tells.
                return _usual_signal(signalnum, handler)
            before, self._handler = self._handler, handler
            return before

        module.signal = set_handler
        module.getsignal = lambda num: self._handler if num == signal.SIGTERM else _usual_getsignal(num)

    @property
    def is_handled(self) -> bool:
        """Whether the program has a handler of its own."""
        return callable(self._handler) and self._handler not in (signal.SIG_DFL, signal.SIG_IGN)

    @property
    def is_ignored(self) -> bool:
        return bool(self._handler == signal.SIG_IGN)

    def call(self) -> None:
        """As Python would."""
        self._handler(signal.SIGTERM, sys._getframe(1))


def send_to_main_thread() -> None:
    """Send the signal to this process: what the program waits for in its main thread is interrupted."""
    ident = threading.main_thread().ident
    assert ident is not None
    signal.pthread_kill(ident, signal.SIGTERM)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()

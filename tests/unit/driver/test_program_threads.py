"""Whether a program waits, by what its threads do."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from app.driver.program import threads
from app.driver.program.threads import ProgramThreads


def test_a_function_that_spark_calls_for_each_batch_is_no_thread_of_the_program(monkeypatch: Any) -> None:
    """It would be new at each look, so that a program that sleeps would never be seen to wait."""
    here = Path(__file__).name
    places: Any = SimpleNamespace(
        of_frame=lambda frame: "job.py, line 1",
        named=lambda file: here if file.endswith(here) else None,
    )
    inside, done = threading.Event(), threading.Event()

    def _call_proxy() -> None:
        inside.set()
        assert done.wait(20)

    called = threading.Thread(target=_call_proxy)
    called.start()
    assert inside.wait(20)
    ours = threading.get_ident(), called.ident
    frames = {ident: frame for ident, frame in sys._current_frames().items() if ident in ours}
    monkeypatch.setattr(threads.sys, "_current_frames", lambda: frames)
    assert set(ProgramThreads(places)._still_s({})) == {threading.get_ident()}
    done.set()
    called.join()


def test_nobody_is_waited_for_once_it_is_over() -> None:
    ProgramThreads(SimpleNamespace()).await_idle(lambda: False, lambda: True)  # type: ignore[arg-type]

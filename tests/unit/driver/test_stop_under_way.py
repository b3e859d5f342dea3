"""A program that stops its session while a query runs: what it was ending with is why it has failed, if it was."""

from __future__ import annotations

import queue
import threading
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest

from app.driver.failures import Failure
from app.driver.program.places import Places
from app.driver.program.takeover import Takeover

COMPLAINT = (
    "the program stops its session while its query q runs: wait for it (query.awaitTermination()) or stop it"
)


def told_of(directory: Path, text: str) -> Failure | None:
    """What the program ``text`` has failed with when it has called ``stop``. Its thread hangs from there on."""
    script = directory / "job.py"
    script.write_text(dedent(text), encoding="utf-8")
    ends: queue.SimpleQueue[Failure | None] = queue.SimpleQueue()
    host: Any = SimpleNamespace(program_ended=ends.put)
    takeover = Takeover(host, Places(directory, "job.py"), {})
    takeover.queries = SimpleNamespace(running=lambda: [SimpleNamespace(name="q")])  # type: ignore[assignment]

    def run() -> None:
        exec(compile(script.read_text(), str(script), "exec"), {"stop": takeover.stop_session})

    threading.Thread(target=run, daemon=True).start()
    return ends.get(timeout=60)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param(
            "try:\n    {}['b']\nfinally:\n    stop()", "job.py, line 2: KeyError: 'b'", id="finally"
        ),
        pytest.param(
            """
            class Session:
                def __enter__(self): return self
                def __exit__(self, *_): stop()
            def work():
                raise ValueError("no luck")
            with Session():
                work()
            """,
            "job.py, line 6: ValueError: no luck",
            id="with",
        ),
        pytest.param(
            """
            from contextlib import contextmanager
            @contextmanager
            def session():
                try:
                    yield
                finally:
                    stop()
            with session():
                raise ValueError("no luck")
            """,
            "job.py, line 10: ValueError: no luck",
            id="a generator",
        ),
        pytest.param(
            "try:\n    {}['b']\nexcept Exception as error:\n    print(error)\n    stop()\n    raise",
            "job.py, line 2: KeyError: 'b'",
            id="raised again",
        ),
        pytest.param(
            "import sys\ntry:\n    {}['b']\nexcept Exception as error:\n    stop()\n    sys.exit(1)",
            "job.py, line 3: KeyError: 'b'",
            id="leaves for it",
        ),
        pytest.param(
            "import sys\ntry:\n    sys.exit(3)\nfinally:\n    stop()",
            "job.py, line 3: the program ended with sys.exit(3).",
            id="exit",
        ),
        pytest.param(
            """
            try:
                {}['b']
            finally:
                try:
                    stop()
                except Exception:
                    pass
            """,
            "job.py, line 3: KeyError: 'b'",
            id="a stop that may fail",
        ),
    ],
)
def test_an_exception_under_way_is_why_it_failed(tmp_path: Path, text: str, sentence: str) -> None:
    failure = told_of(tmp_path, text)
    assert failure is not None and failure.sentence == sentence
    assert failure.recoverable and failure.user_error is not None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("stop()", 1, id="at the end"),
        pytest.param("try:\n    pass\nfinally:\n    stop()", 4, id="finally"),
        pytest.param("import sys\ntry:\n    sys.exit(0)\nfinally:\n    stop()", 5, id="ends well"),
        pytest.param(
            "try:\n    {}['b']\nexcept KeyError:\n    stop()", 4, id="caught, and the program goes on"
        ),
        pytest.param(
            """
            def main():
                try:
                    pass
                finally:
                    stop()
            try:
                import nowhere
            except ImportError:
                main()
            """,
            6,
            id="all of it runs in a handler",
        ),
    ],
)
def test_without_one_the_stop_is_refused(tmp_path: Path, text: str, line: int) -> None:
    failure = told_of(tmp_path, text)
    assert failure is not None and failure.sentence.startswith(f"job.py, line {line}: {COMPLAINT}")
    assert not failure.recoverable

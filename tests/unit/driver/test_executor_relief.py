"""Who holds an executor while it is warmed up gives way, whatever happens."""

from __future__ import annotations

import threading
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.driver import executor_warmup
from app.driver.executor_warmup import _relieve


class Held:
    """A pool with ``tasks`` that run or wait."""

    def __init__(self, tasks: int) -> None:
        self.tasks = tasks
        self.files: list[Path] = []

    def while_there(self, file: Path) -> None:
        self.files.append(file)
        self.tasks += 1


def relieved(held: Any, directory: Path, *, done: bool = False) -> Path:
    first = directory / "first"
    first.touch()
    over = threading.Event()
    if done:
        over.set()
    _relieve(held, first, directory / "last", over)
    return first


def test_the_last_one_waits_before_the_first_gives_way(tmp_path: Path) -> None:
    held = Held(tasks=2)
    assert not relieved(held, tmp_path).exists()
    assert held.files == [tmp_path / "last"]


def test_nobody_holds_what_has_been_warmed_up_already(tmp_path: Path) -> None:
    held = Held(tasks=1)
    assert not relieved(held, tmp_path, done=True).exists()
    assert held.files == []


def test_it_gives_way_when_nobody_can_be_seen_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_warmup, "_RELIEF_S", 0.05)
    assert not relieved(Held(tasks=0), tmp_path).exists()


def test_it_gives_way_when_something_fails(tmp_path: Path) -> None:
    class Full(Held):
        def while_there(self, file: Path) -> None:
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        relieved(Full(tasks=2), tmp_path)
    assert not (tmp_path / "first").exists()


def test_who_holds_it_asks_what_it_sees_until_it_has_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[Any] = [["elsewhere"], OSError("it was lost"), ["elsewhere"], []]
    asked = threading.Event()

    def collect() -> list[str]:
        assert asked.wait(20)
        end = ends.pop(0)
        if isinstance(end, OSError):
            raise end
        return end  # type: ignore[no-any-return]

    answers = chain([None, None], repeat(True))

    class Sight:
        files = (tmp_path / "mark", tmp_path / "python")

        def ask(self, executor: int) -> Any:
            asked.clear()
            return lambda: (next(answers), asked.set())[0]

    backend = SimpleNamespace(isExecutorActive=lambda _: True)
    context: Any = SimpleNamespace(setLocalProperty=lambda *_: None)
    monkeypatch.setattr(
        executor_warmup, "scala_context", lambda _: SimpleNamespace(schedulerBackend=lambda: backend)
    )
    monkeypatch.setattr(executor_warmup, "shell_at", lambda *_: SimpleNamespace(collect=collect))
    monkeypatch.setattr(executor_warmup, "_AGAIN_S", 0.0)
    sight: Any = Sight()
    held = executor_warmup._Held(context, 3, sight)
    holder = held.while_there(tmp_path / "first")
    holder.join(20)
    assert not holder.is_alive() and ends == []
    assert held.answered.wait(20)

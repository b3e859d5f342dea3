"""Options that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from app.cli.options import Call, expanded

Run = Callable[..., Any]


@pytest.mark.parametrize(
    "command",
    [
        ("serve", "--data-dir", ""),
        ("serve", "--config", ""),
        ("doctor", "--data-dir", " "),
        ("demo", "--data-dir", ""),
        ("cluster", "up", "--directory", ""),
        ("jobs", "--token-file", ""),
    ],
    ids=" ".join,
)
def test_an_empty_path_is_not_the_current_directory(
    slotwise: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = slotwise(*command)
    assert (outcome.status, list(tmp_path.iterdir())) == (2, [])
    assert "should not be empty" in outcome.err


@dataclass
class Size:
    wide: bool = False
    names: list[str] = field(default_factory=list)


def test_a_command_gets_the_options_of_a_dataclass_and_a_client_while_it_runs() -> None:
    seen: list[Any] = []

    def command(size: Size, call: Call, job: str = "delays") -> None:
        seen.append((size, call.as_json, job, call.client.server, call.client._http.is_closed))
        seen.append(call.client)

    run = expanded(command)
    parameters = inspect.signature(run).parameters
    assert list(parameters) == ["wide", "names", "job", "as_json", "server", "token_file"], "common ones last"
    assert [each.default for each in parameters.values()] == [False, [], "delays", False, None, None]
    run(wide=True, names=["a"], job="x", as_json=True, server="http://there:1", token_file=None)
    assert seen[0] == (Size(True, ["a"]), True, "x", "http://there:1", False)
    assert seen[1]._http.is_closed

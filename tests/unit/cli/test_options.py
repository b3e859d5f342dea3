"""Options that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from app.cli.errors import CliError
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
    height: int
    wide: bool = False
    names: list[str] = field(default_factory=list)


def test_a_command_gets_the_options_of_a_dataclass_and_a_client_while_it_runs() -> None:
    seen: list[Any] = []

    def command(size: Size, call: Call, job: str = "delays") -> None:
        seen.extend([size, call.as_json, job, call.client.server, call.client, call.client._http.is_closed])
        raise CliError("It goes wrong.")

    run = expanded(command)
    parameters = inspect.signature(run).parameters
    assert list(parameters) == ["height", "wide", "names", "job", "as_json", "server", "token_file"]
    usual = [each.default for each in parameters.values()]
    assert usual == [inspect.Parameter.empty, False, [], "delays", False, None, None]
    with pytest.raises(CliError):
        run(height=3, wide=True, names=["a"], job="x", as_json=True, server="http://there:1", token_file=None)
    *told, client, was_closed = seen
    assert told == [Size(3, True, ["a"]), True, "x", "http://there:1"]
    assert not was_closed and client._http.is_closed


def test_two_options_of_a_command_do_not_have_one_name() -> None:
    def command(size: Size, wide: bool = True) -> None: ...

    with pytest.raises(ValueError, match="wide"):
        expanded(command)

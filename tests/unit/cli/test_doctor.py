"""`doctor` finds what is wrong and says what to do."""

from __future__ import annotations

import importlib.metadata
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.cli import doctor
from app.settings import Settings

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def no_settings_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("SLOTWISE_"):
            monkeypatch.delenv(name)


def line(slotwise: Run, name: str, *arguments: str) -> tuple[Any, dict[str, Any]]:
    outcome = slotwise("doctor", "--json", *arguments)
    return outcome, next(check for check in json.loads(outcome.out) if check["name"] == name)


def test_a_port_in_use_is_a_problem(slotwise: Run, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        outcome, check = line(slotwise, f"port {port}", "--port", port, "--data-dir", str(tmp_path))
    assert outcome.status == 1
    assert f"port {port}" in outcome.err
    assert check["ok"] is False
    assert "choose another port" in check["advice"]


def test_a_data_directory_that_is_a_file_is_a_problem(slotwise: Run, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    outcome, check = line(slotwise, "data directory", "--port", "0", "--data-dir", str(file))
    assert outcome.status == 1
    assert check["found"] == f"{file} is not a directory"


def test_an_old_java_is_a_problem_with_advice(
    slotwise: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    outcome, check = line(slotwise, "Java", "--port", "0", "--data-dir", str(tmp_path))
    assert outcome.status == 1
    assert "version 1.8.0_402" in check["advice"]


def test_a_database_that_does_not_answer_is_a_problem_without_its_password(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"postgresql+psycopg://me:s3cret@127.0.0.1:{probe.getsockname()[1]}/jobs"
        check = doctor._database(Settings(data_dir=tmp_path, database_url=url))
    assert check is not None and not check.ok
    assert "does not answer" in check.found
    assert "s3cret" not in check.found + check.advice


def test_too_little_memory_is_a_problem(tmp_path: Path) -> None:
    check = doctor._memory(Settings(data_dir=tmp_path, driver_memory_mb=1 << 30))
    if check is None:
        pytest.skip("this system does not tell its memory")
    assert not check.ok
    assert "driver_memory_mb" in check.advice


def test_an_unknown_setting_ends_with_2(slotwise: Run, tmp_path: Path) -> None:
    config = tmp_path / "slotwise.toml"
    config.write_text("slotz = 3\n")
    outcome = slotwise("doctor", "--config", str(config))
    assert outcome.status == 2
    assert outcome.err == "slotz is not a setting. Did you mean slots?\n"


def test_every_line_says_ok_or_problem_and_advice_follows(slotwise: Run, tmp_path: Path) -> None:
    outcome = slotwise("doctor", "--port", "0", "--data-dir", str(tmp_path / "file" / "x"))
    for text in outcome.out.splitlines():
        assert text.startswith(("ok       ", "problem  ", "         -> "))


@pytest.mark.parametrize(
    ("version", "found"),
    [(None, "not installed"), ("5.29.1", "5.29.1"), ("6.33.4", "6.33.4"), ("8.0.0", "8.0.0")],
)
def test_a_protobuf_that_pyspark_was_not_made_for_is_a_problem(
    slotwise: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None, found: str
) -> None:
    asked = importlib.metadata.version

    def installed(package: str) -> str:
        if package != "protobuf":
            return asked(package)
        if version is None:
            raise importlib.metadata.PackageNotFoundError(package)
        return version

    monkeypatch.setattr(importlib.metadata, "version", installed)
    outcome, check = line(slotwise, "protobuf", "--port", "0", "--data-dir", str(tmp_path))
    assert outcome.status == 1
    assert (check["ok"], check["found"]) == (False, found)
    assert "pip install 'protobuf>=6.33.5,<8'" in check["advice"]


def test_the_protobuf_of_the_lock_is_one_that_pyspark_was_made_for(slotwise: Run, tmp_path: Path) -> None:
    _, check = line(slotwise, "protobuf", "--port", "0", "--data-dir", str(tmp_path))
    assert check["ok"], check

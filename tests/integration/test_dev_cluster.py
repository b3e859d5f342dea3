"""`slotwise cluster`: a real master and real workers, by the commands that a developer types."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "cluster"
    slotwise("down", tmp_path / "cluster")


def slotwise(command: str, directory: Path, *arguments: str, status: int = 0) -> str:
    """What the command prints, on stdout if it is done and on stderr if it refuses."""
    done = subprocess.run(
        [sys.executable, "-m", "app.cli", "cluster", command, *arguments, "--directory", str(directory)],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == status, (done.stdout, done.stderr)
    return done.stderr if status else done.stdout


def shown(directory: Path) -> Any:
    return json.loads(slotwise("show", directory, "--json"))


def page_check(master: str, webui: str) -> str:
    """What `slotwise doctor` says of the page of a master."""
    asked = ("doctor", "--json", "--port", "0", "--cluster-master", master, "--cluster-webui", webui)
    done = subprocess.run(
        [sys.executable, "-m", "app.cli", *asked], capture_output=True, text=True, timeout=60
    )
    (check,) = [one for one in json.loads(done.stdout) if one["name"] == "Spark master's page"]
    return f"{check['found']} {check['advice']}"


@pytest.mark.long
def test_up_add_kill_show_and_down(directory: Path) -> None:
    text = slotwise("up", directory, "--workers", "1", "--cores", "3")
    made = shown(directory)
    assert made["status"] == "ALIVE"
    assert f"--cluster-master {made['master']} --cluster-webui {made['webui']}" in text
    assert [(one["name"], one["cores"], one["running"]) for one in made["workers"]] == [("worker-1", 3, True)]

    assert page_check(made["master"], made["webui"]).strip().endswith("can be read, and the master is alive")
    host, _, port = str(made["master"]).rpartition(":")
    elsewhere = f"{host}:{int(port) % 60_000 + 1}"
    assert f"it is the page of the master {made['master']}" in page_check(elsewhere, made["webui"])

    assert "worker-2 is up with 1 cores." in slotwise("add", directory, "--cores", "1")
    assert "There is no running daemon worker-9" in slotwise("kill", directory, "worker-9", status=1)
    slotwise("kill", directory, "worker-1")
    slotwise("kill", directory, "master")
    assert shown(directory)["status"] == "does not answer"

    # As many workers as asked for, and the master at the address that it had.
    slotwise("up", directory, "--workers", "2")
    again = shown(directory)
    assert (again["master"], again["status"]) == (made["master"], "ALIVE")
    assert [one["name"] for one in again["workers"]] == ["worker-2", "worker-3"]

    assert slotwise("down", directory) == "3 processes were ended.\n"
    assert slotwise("down", directory) == "Nothing was running.\n"
    assert "Start one with: slotwise cluster up" in slotwise("add", directory, status=1)

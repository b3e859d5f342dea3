"""A driver without a job ends with its server at any moment; one that was given a job does not."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

# In place of the JVM, which as long as it starts looks at nothing.
JAVA = """#!/bin/sh
echo $$ > "{pid_file}.new"
mv "{pid_file}.new" "{pid_file}"
exec sleep 600
"""
ROPE = "import time; from app.driver.rope import Rope; rope = Rope(); "

Start = Callable[..., subprocess.Popen[bytes]]


def until(reached: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 20
    while not (found := reached()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a module of the driver as the server does, with that Java."""
    java = tmp_path / "java"
    java.write_text(JAVA.format(pid_file=tmp_path / "java.pid"))
    java.chmod(0o755)
    started: list[subprocess.Popen[bytes]] = []

    def run(*command: str) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        environment = {
            **os.environ,
            "_SLOTWISE_DRIVER_LOCK": str(tmp_path / "driver-1.lock"),
            "_SLOTWISE_DRIVER_SOCKETS": str(tmp_path / "sockets"),
            "_SLOTWISE_DRIVER_JAVA": str(java),
        }
        process = subprocess.Popen(
            [sys.executable, *command], stdin=pipe, stdout=pipe, start_new_session=True, env=environment
        )
        started.append(process)
        return process

    yield run
    for process in started:
        with process, contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("module", ["app.driver", "app.driver.appcds"])
def test_it_ends_while_its_jvm_starts(start: Start, tmp_path: Path, module: str) -> None:
    argument = "--warm" if module == "app.driver" else str(tmp_path / "archive.jsa")
    process = start("-m", module, argument)
    java = int(until(lambda: (file := tmp_path / "java.pid").exists() and file.read_text()))
    assert process.poll() is None
    assert process.stdin is not None
    process.stdin.close()
    process.wait(20)
    until(lambda: is_gone(java))
    if module == "app.driver":
        assert not (tmp_path / "driver-1.scratch").exists() and not (tmp_path / "sockets").exists()


def test_it_ends_while_it_is_imported(start: Start) -> None:
    process = start("-c", f"{ROPE}time.sleep(600)")
    assert process.stdin is not None
    process.stdin.close()
    process.wait(20)


def test_who_was_given_a_job_keeps_it_though_the_server_died_with_that_word(start: Start) -> None:
    process = start("-c", f"{ROPE}print(rope.next(), rope.next(), flush=True); time.sleep(600)")
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("/a job/spëc.json\n".encode())
    process.stdin.close()
    assert process.stdout.readline().decode() == "/a job/spëc.json None\n"
    assert process.poll() is None


def test_a_driver_that_is_started_by_hand_says_what_is_missing(start: Start) -> None:
    process = start("-m", "app.driver", "--cold")
    assert process.wait(20) == 2

"""Drivers that live and do not run, with real processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import app.cluster.processes as standstill_module
from app.cluster.processes import standstill

AFTER_S = 0.2
BUSY = "while True: pass"
WITH_JVM = (
    "import subprocess, sys; child = subprocess.Popen([sys.argv[1], '-c', 'while :; do :; done']); "
    "print(child.pid, flush=True)\n" + BUSY
)


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def start(processes: list[subprocess.Popen[str]], program: str, *arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    processes.append(process)
    return process


async def test_a_stopped_process_stands_still(processes: list[subprocess.Popen[str]]) -> None:
    driver = start(processes, BUSY)
    os.kill(driver.pid, signal.SIGSTOP)
    said = await standstill(driver.pid, AFTER_S)
    assert f"process {driver.pid} stood still: for 0.2 s" in said
    assert "its Python process was stopped by a signal" in said


async def test_a_process_that_only_waits_stands_still(processes: list[subprocess.Popen[str]]) -> None:
    driver = start(processes, "import signal; print(flush=True); signal.pause()")
    assert driver.stdout is not None
    driver.stdout.readline()
    assert "it used no processor time" in await standstill(driver.pid, AFTER_S)


async def test_a_busy_one_does_not_until_it_is_stopped(processes: list[subprocess.Popen[str]]) -> None:
    driver = start(processes, BUSY)
    watch = asyncio.ensure_future(standstill(driver.pid, AFTER_S))
    done, _ = await asyncio.wait({watch}, timeout=5 * AFTER_S)
    assert not done
    os.kill(driver.pid, signal.SIGSTOP)
    assert await watch


async def test_one_that_has_ended_is_no_news(processes: list[subprocess.Popen[str]]) -> None:
    driver = start(processes, "")
    assert await standstill(driver.pid, AFTER_S) == ""


async def test_a_stopped_jvm_stands_still_beside_a_busy_python(
    processes: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    # A process has the name of the file that it runs.
    (tmp_path / "java").symlink_to("/bin/sh")
    driver = start(processes, WITH_JVM, str(tmp_path / "java"))
    assert driver.stdout is not None
    os.kill(int(driver.stdout.readline()), signal.SIGSTOP)
    assert "its JVM was stopped by a signal" in await standstill(driver.pid, AFTER_S)


async def test_where_no_processor_time_is_told_only_a_signal_counts(
    processes: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standstill_module.Path, "glob", lambda *_: ())
    driver = start(processes, BUSY)
    watch = asyncio.ensure_future(standstill(driver.pid, AFTER_S))
    done, _ = await asyncio.wait({watch}, timeout=5 * AFTER_S)
    assert not done
    os.kill(driver.pid, signal.SIGSTOP)
    assert "was stopped by a signal" in await watch

"""The demo as a user runs it: a process of its own, on real Spark, with real data."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.cli.demo.server import drivers_of

pytest.importorskip("pandas", reason="the demo's extra is not installed")

DEMO_TIMEOUT_S = 360

pytestmark = pytest.mark.timeout(DEMO_TIMEOUT_S + 60)


def processes_of(folder: Path) -> list[int]:
    """The demo's processes: drivers with their JVMs, and whatever has ``folder`` in its command line."""
    found = set(drivers_of(folder))
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            with contextlib.suppress(OSError):
                if str(folder).encode() in (process / "cmdline").read_bytes():
                    found.add(int(process.name))
    return sorted(found)


def wait_for(what: str, reached: Callable[[], Any], timeout_s: float) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (value := reached()):
        assert time.monotonic() < deadline, f"after {timeout_s} s it is not so that {what}"
        time.sleep(0.1)
    return value


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A directory for a demo; what the demo left alive in it is ended."""
    yield tmp_path / "demo"
    for pid in processes_of(tmp_path / "demo"):
        os.kill(pid, signal.SIGKILL)


def command(folder: Path) -> list[str]:
    return [sys.executable, "-m", "app.cli", "demo", "--json", "--data-dir", str(folder)]


@pytest.mark.long
def test_the_demo_ends_exact_after_rescales_and_a_kill(folder: Path) -> None:
    done = subprocess.run(
        command(folder), capture_output=True, text=True, timeout=DEMO_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["exact"] is True
    assert report["flightsInSink"] == report["flights"] == 336_776
    assert report["routesInSink"] == report["routes"] == 439
    assert report["seconds"] < DEMO_TIMEOUT_S

    records = {record["rescaleUuid"]: record for record in report["rescales"]}
    for name in ("up", "down", "beyond the slots"):
        step = report["steps"][name]
        record = records[step["rescaleUuid"]]
        assert (record["terminalState"], record["rung"]) == ("COMPLETED", "in-place"), (name, record)
        assert step["driverPidBefore"] == step["driverPidAfter"], "in place means in the same process"
        assert record["reason"] == f"demo: {name}"
    assert report["steps"]["beyond the slots"]["explanation"], "too few slots are explained in words"
    kill = report["steps"]["kill"]
    assert records[kill["rescaleUuid"]]["triggerCause"] == "RECOVERABLE_FAILOVER"
    assert kill["driverPidBefore"] != kill["driverPidAfter"]
    assert [record["rescaleUuid"] for record in report["rescales"] if record["terminalState"] is None] == []
    assert report["steps"]["stop"]["status"] == "FINISHED"
    wait_for("no process is left", lambda: not processes_of(folder), 10)


@pytest.mark.long
def test_a_demo_that_is_interrupted_leaves_no_process(folder: Path) -> None:
    process = subprocess.Popen(
        command(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A suite that runs in the background of a shell ignores the signal, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        wait_for("the job has written", (folder / "routes.db").exists, 120)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, told
    assert "Traceback" not in told
    wait_for("no process is left", lambda: not processes_of(folder), 10)

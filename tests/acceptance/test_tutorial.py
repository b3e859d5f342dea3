"""docs/tutorial.md, word by word: its commands are run as they stand there."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cli.demo.server import drivers_of
from tests.acceptance.deployment import ROOT, wait_for
from tests.outputs import files_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

_BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)


@contextlib.contextmanager
def _serving(directory: Path, environment: dict[str, str]) -> Iterator[str]:
    """The server of the tutorial, but for its port; its address."""
    command = ["slotwise", "serve", "--data-dir", "slotwise-data", "--slots", "4", "--port", "0"]
    with open(directory / "server.log", "wb") as log:
        server = subprocess.Popen(command, cwd=directory, env=environment, stdout=log, stderr=log)
    try:
        yield wait_for("the server serves", lambda: _address(directory / "server.log"))
    finally:
        server.terminate()
        server.wait(60)
        for pid in drivers_of(directory / "slotwise-data"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_every_command_of_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    _, program, visitors, _, submit, require, kill, count = _BLOCK.findall(
        (ROOT / "docs" / "tutorial.md").read_text()
    )
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def run(commands: str, directory: Path = tmp_path / "shop") -> str:
        done = subprocess.run(
            ["bash", "-ec", commands],
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(program, tmp_path)
    assert "python visitors.py &" in visitors
    run(visitors.replace("python visitors.py &", ""))
    feeder = subprocess.Popen([sys.executable, "visitors.py"], cwd=tmp_path / "shop")
    try:
        with _serving(tmp_path, environment) as environment["SLOTWISE_SERVER"]:
            told = run(submit)
            assert "RUNNING" in told
            assert {"in", "aggregate", "out"} <= {line.split()[0] for line in told.splitlines() if line}
            assert run(require).count("COMPLETED after") == 2
            assert "slotwise watch visits\n" in kill
            run(kill.replace("slotwise watch visits\n", ""))
            wait_for(
                "another driver runs the job", lambda: "attempt 2, driver" in run("slotwise show visits")
            )
            wait_for("it has output", lambda: files_of(tmp_path / "shop" / "out"))
            assert "killed by signal 9" in run("slotwise exceptions visits")
            rows, distinct, wrong = re.findall(r"\d+", run(count).splitlines()[-3])[-3:]
            assert int(rows) == int(distinct) > 0
            assert wrong == "0"
    finally:
        feeder.kill()
        feeder.wait()


def _address(log: Path) -> str | None:
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return next((str(line["url"]) for line in lines if line["event"] == "serving"), None)

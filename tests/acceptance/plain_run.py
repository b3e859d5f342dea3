"""Runs a program as its user does without Slotwise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from app.cluster.runtimes import OWN, Kind
from tests import environments
from tests.acceptance.deployment import SLOTS


@contextmanager
def plain(
    script: Path,
    arguments: list[str],
    log: Path,
    kind: Kind = OWN,
    config: Mapping[str, str] | None = None,
    directory: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """`python job.py` in ``directory``, by default that of the script, its environment activated, on as many cores as
    Slotwise has slots.

    Killed with its JVM at the end.
    """
    settings = {"spark.ui.enabled": "false", **(config or {})}
    options = [f"--conf {name}={value}" for name, value in settings.items()]
    options += ["--jars", ",".join(kind.jars)] if kind.jars else []
    submit = (
        f"--master local[{SLOTS}] --driver-memory 512m --driver-java-options '{environments.quick_java()}'"
    )
    submit += f" {' '.join(options)} pyspark-shell"
    python = kind.python or sys.executable
    path = f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [python, str(script), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=directory or script.parent,
            env={
                **os.environ,
                **(env or {}),
                "PATH": path,
                "PYSPARK_SUBMIT_ARGS": submit,
                "PYTHONUNBUFFERED": "1",
            },
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

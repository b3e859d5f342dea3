"""What a job asks of its JVM is not on the command line, which every user of the host can read."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.driver.jvm import JAVA_OPTIONS_VARIABLE, JAVA_VARIABLE, start_jvm, write_options

OPTIONS = (
    "-Dplain=x",
    "-Dblank=a  b#c",
    '-Dquotes=it\'s "so"',
    r"-Dback=a\b\\c",
    "-Dlines=a\nb\rc",
    "-Dat=@none",
    "-Dempty=",
    "-Dslotwise.password=hunter2 of me",
)
SHOWS = """
public class Shows { public static void main(String[] names) {
    for (String name : names) System.out.print(System.getProperty(name) + "\\0"); } }
"""


@pytest.mark.skipif(shutil.which("java") is None, reason="there is no java")
def test_java_reads_every_option_as_it_was_asked(tmp_path: Path) -> None:
    file = write_options(tmp_path / "options", OPTIONS)
    assert stat.S_IMODE((tmp_path / "options").stat().st_mode) == 0o600
    (tmp_path / "Shows.java").write_text(SHOWS)
    names = [option[2:].partition("=")[0] for option in OPTIONS]
    done = subprocess.run(
        ["java", "-Xint", file, str(tmp_path / "Shows.java"), *names],
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode().split("\0")[:-1] == [option.partition("=")[2] for option in OPTIONS]


def test_no_process_of_a_driver_shows_a_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\nexec sleep 60\n")
    java.chmod(0o700)
    monkeypatch.setenv(JAVA_VARIABLE, str(java))
    monkeypatch.setenv(JAVA_OPTIONS_VARIABLE, shlex.join(OPTIONS))
    monkeypatch.setattr("app.driver.jvm.spark_home", lambda: tmp_path)
    monkeypatch.setattr("app.driver.jvm._spark_environment", lambda: dict(os.environ))
    with (tmp_path / "log").open("w") as log:
        monkeypatch.setattr(sys, "stderr", log)
        jvm = start_jvm(scratch_dir=tmp_path / "scratch", inherited_fds=())
    try:
        words: Any = jvm.process.args
        [given] = [Path(word[1:]) for word in words if word.startswith("@")]
        assert stat.S_IMODE(given.stat().st_mode) == 0o600
        assert "-Dslotwise.password=hunter2 of me" in given.read_text()
        assert "hunter2" not in " ".join(words)
        assert stat.S_IMODE(os.stat(f"/proc/{jvm.process.pid}/environ").st_mode) == 0o400
    finally:
        jvm.kill()
        assert jvm.process.stdin is not None
        jvm.process.stdin.close()


@pytest.mark.parametrize(("status", "why"), [(3, "JVM, 200m, is full"), (1, None), (0, None)])
def test_a_jvm_that_its_heap_has_ended_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, why: str | None
) -> None:
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\nexit {status}\n")
    java.chmod(0o700)
    monkeypatch.setenv(JAVA_VARIABLE, str(java))
    monkeypatch.setenv(JAVA_OPTIONS_VARIABLE, "-Xmx500m -Xmx200m")
    monkeypatch.setattr("app.driver.jvm.spark_home", lambda: tmp_path)
    monkeypatch.setattr("app.driver.jvm._spark_environment", lambda: dict(os.environ))
    with (tmp_path / "log").open("w") as log:
        monkeypatch.setattr(sys, "stderr", log)
        jvm = start_jvm(scratch_dir=tmp_path / "scratch", inherited_fds=())
    told = jvm.why_ended()
    assert (told is None) if why is None else (why in str(told) and "spark.driver.memory" in str(told))
    assert jvm.process.stdin is not None
    jvm.process.stdin.close()

"""What a job asks of its JVM is not on the command line, which every user of the host can read; and how it ends."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.driver.failures import DriverError
from app.driver.jvm import JAVA_OPTIONS_VARIABLE, JAVA_VARIABLE, Jvm, start_jvm, write_options

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
    monkeypatch.setattr("app.driver.jvm._spark_environment", lambda _: dict(os.environ))
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


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Jvm]]:
    """Starts what stands in for a JVM, a script."""

    def started(script: str) -> Jvm:
        java = tmp_path / "java"
        java.write_text(f"#!/bin/sh\n{script}\n")
        java.chmod(0o700)
        jvm = start_jvm(scratch_dir=tmp_path / "scratch", inherited_fds=())
        jvms.append(jvm)
        return jvm

    monkeypatch.setenv(JAVA_VARIABLE, str(tmp_path / "java"))
    monkeypatch.setenv(JAVA_OPTIONS_VARIABLE, "-Xmx500m -Xmx200m")
    monkeypatch.setattr("app.driver.jvm.spark_home", lambda: tmp_path)
    monkeypatch.setattr("app.driver.jvm._spark_environment", lambda _: dict(os.environ))
    jvms: list[Jvm] = []
    with (tmp_path / "log").open("w") as log:
        monkeypatch.setattr(sys, "stderr", log)
        yield started
    for jvm in jvms:
        jvm.kill()
        assert jvm.process.stdin is not None
        jvm.process.stdin.close()


@pytest.mark.parametrize(
    ("script", "sentence", "outside"),
    [
        ("exit 3", "The heap of the driver's JVM, 200m, is full .* by spark.driver.memory.", False),
        ("exit 52", "The heap of the driver's JVM, 200m, is full .* by spark.driver.memory.", False),
        ("exit 1", "The driver's JVM ended with exit status 1: .*", False),
        ("exit 143", r"The driver's JVM was killed by signal 15 \(SIGTERM\).", True),
        ("kill -TERM $$", r"The driver's JVM was killed by signal 15 \(SIGTERM\).", True),
        ("kill -KILL $$", r"The driver's JVM was killed by signal 9 \(SIGKILL\): the kernel .*", True),
        ("kill -ABRT $$", r"The driver's JVM crashed with signal 6 \(SIGABRT\): .*", False),
    ],
)
def test_a_jvm_that_has_ended_says_how(
    start: Callable[[str], Jvm], script: str, sentence: str, outside: bool
) -> None:
    end = start(script).end(60.0)
    assert end is not None and re.fullmatch(sentence, end.sentence), end
    assert end.recoverable and end.outside is outside


def test_a_jvm_that_does_not_start_is_told_with_what_it_has_said(start: Callable[[str], Jvm]) -> None:
    print("of another", file=sys.stderr, flush=True)
    jvm = start("echo 'There is no room.'; exit 1")
    with pytest.raises(DriverError, match=r"status 1 before it was ready: There is no room\.$") as found:
        jvm.wait_for_gateway()
    assert found.value.recoverable


def test_a_jvm_that_lives_has_no_end(start: Callable[[str], Jvm]) -> None:
    assert start("exec sleep 600").end(0.0) is None

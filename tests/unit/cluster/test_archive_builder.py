"""The class data archive: built once, given up without a trace, and never waited for."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from app.cluster.appcds import ArchiveBuilder
from app.cluster.environments import own_environment
from app.cluster.java import Java
from app.driver import appcds as building
from app.driver import jvm
from app.driver.failures import DriverError

JAVA = Java("/somewhere/java", "21.0.1")
# A build that starts, and then does what its test wants: ``then`` runs after its files are there.
PROGRAM = """
import os, signal, subprocess, sys, tempfile, time
archive = sys.argv[1]
partial = f"{archive}.{os.getpid()}.partial"
scratch = tempfile.mkdtemp(prefix=f"slotwise-archive-{os.getpid()}-")
def clean():
    os.unlink(partial); os.rmdir(scratch)
open(partial, "w").close()
"""
BUILDS = PROGRAM + "clean(); open(archive, 'w').write(os.environ['_SLOTWISE_DRIVER_JAVA'])"
FAILS = PROGRAM + "clean(); print('no memory', file=sys.stderr); sys.exit(3)"
SILENT = PROGRAM + "clean()"
OBEYS = PROGRAM + "\ntry:\n    signal.sigwait([signal.SIGTERM])\nfinally:\n    clean()"
CHILD = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
# Its child is the JVM, which would go on without it.
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + PROGRAM + CHILD + ".wait()"


def builder(cache_dir: Path, program: str) -> ArchiveBuilder:
    return ArchiveBuilder(cache_dir, JAVA, command=(sys.executable, "-c", program))


async def until(condition: Callable[[], Any]) -> Any:
    deadline = asyncio.get_running_loop().time() + 20
    while not (found := condition()):
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)
    return found


def traces(cache_dir: Path) -> list[Path]:
    return [*cache_dir.glob("*.partial"), *Path(tempfile.gettempdir()).glob("slotwise-archive-*")]


@pytest.fixture(autouse=True)
def own_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)


async def test_it_is_built_once_with_the_java_that_was_looked_at(tmp_path: Path) -> None:
    cache_dir = tmp_path / "cache"
    archive = builder(cache_dir, BUILDS)
    assert archive.path_if_ready() is None
    assert await archive.ensure()
    assert archive.path_if_ready() == archive.path
    assert archive.path.read_text() == JAVA.command
    assert await builder(cache_dir, FAILS).ensure(), "it is there already"
    archive.stop()
    assert archive.path.exists()


async def test_another_java_has_another_archive(tmp_path: Path) -> None:
    others = {ArchiveBuilder(tmp_path, Java("java", version)).path for version in ("17.0.1", "21.0.1")}
    assert len(others) == 2


@pytest.mark.parametrize(
    ("content", "modified_s", "is_rebuilt"), [("a", 1, False), ("a", 2, True), ("ab", 1, True)]
)
async def test_it_is_built_again_for_a_pyspark_that_was_installed_anew(
    tmp_path: Path, content: str, modified_s: int, is_rebuilt: bool
) -> None:
    jar, cache_dir = tmp_path / "pyspark" / "jars" / "spark.jar", tmp_path / "cache"
    jar.parent.mkdir(parents=True)
    environment = replace(own_environment(), spark_home=str(tmp_path / "pyspark"))

    async def ensured(content: str, modified_s: int) -> Path:
        jar.write_text(content)
        os.utime(jar, (modified_s, modified_s))
        command = (sys.executable, "-c", BUILDS)
        archive = ArchiveBuilder(cache_dir, JAVA, environment=environment, command=command)
        assert await archive.ensure()
        return archive.path

    of_another_place = builder(cache_dir, BUILDS)
    assert await of_another_place.ensure()
    first = await ensured("a", 1)
    now = await ensured(content, modified_s)
    assert (now != first) == is_rebuilt
    assert set(cache_dir.glob("*.jsa")) == {of_another_place.path, now}, (
        "nobody can start from the first one any more"
    )
    assert first.with_suffix(".log").exists() != is_rebuilt


@pytest.mark.parametrize("program", [FAILS, SILENT])
async def test_a_build_that_fails_costs_speed_only(program: str, tmp_path: Path) -> None:
    archive = builder(tmp_path, program)
    assert not await archive.ensure()
    assert archive.path_if_ready() is None
    if program is FAILS:
        assert "no memory" in archive.path.with_suffix(".log").read_text()


async def test_a_cache_that_cannot_be_written_costs_speed_only(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not await builder(tmp_path / "file" / "cache", BUILDS).ensure()


@pytest.mark.parametrize("program", [OBEYS, STUBBORN], ids=["obeys", "stubborn"])
async def test_a_build_that_is_given_up_leaves_nothing(program: str, tmp_path: Path) -> None:
    archive = builder(tmp_path, program)
    ensuring = asyncio.create_task(archive.ensure())
    await until(lambda: len(traces(tmp_path)) == 2)
    assert archive.is_building
    process = archive._process
    assert process is not None
    if program is STUBBORN:
        (child,) = await until(lambda: psutil.Process(process.pid).children())
    archive.stop()
    assert not await ensuring
    assert process.returncode is not None
    assert traces(tmp_path) == []
    if program is STUBBORN:
        await until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


class FakeJvm:
    """A JVM that does not start."""

    killed = False

    def wait_for_gateway(self) -> None:
        raise DriverError("The JVM ended.")

    def kill(self) -> None:
        self.killed = True


def test_a_build_that_fails_cleans_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeJvm()
    archive = tmp_path / "spark.jsa"
    old = tmp_path / "spark.jsa.1.partial"
    old.touch()
    of_another = tmp_path / "other.jsa.1.partial"
    of_another.touch()

    def start(*, extra: tuple[str, ...], **_: Any) -> FakeJvm:
        assert not old.exists(), "what a killed build left goes first"
        Path(extra[0].partition("=")[2]).touch()
        assert len(traces(tmp_path)) == 3
        return fake

    monkeypatch.setattr(building, "start_jvm", start)
    monkeypatch.setattr(sys, "argv", ["appcds", str(archive)])
    with pytest.raises(DriverError, match="The JVM ended"):
        building.main()
    assert fake.killed
    assert traces(tmp_path) == [of_another]


def test_the_driver_takes_the_java_that_it_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(jvm.JAVA_VARIABLE, raising=False)
    with pytest.raises(DriverError, match="started by the control plane"):
        jvm.java_command_line(tmp_path, "", ())
    monkeypatch.setenv("JAVA_HOME", "/elsewhere")
    monkeypatch.setenv(jvm.JAVA_VARIABLE, "/somewhere/java")
    assert jvm.java_command_line(tmp_path, "", ())[0] == "/somewhere/java"

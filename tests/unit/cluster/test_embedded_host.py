"""The embedded host with real processes that stand in for drivers: who gets which, and what becomes of those that end.

A stand-in takes its lock, makes its files and says READY, as `app.driver` does; its ``mode`` says what then.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from app import filelocks
from app.cluster import embedded, processes
from app.cluster.embedded import EmbeddedHost
from app.cluster.java import Java
from app.cluster.ports import DriverLaunchError
from app.cluster.processes import LocalDriver, is_running

STAND_IN = """
import fcntl, os, sys
from pathlib import Path
told = {name.rpartition("DRIVER_")[2]: value for name, value in os.environ.items()}
lock_file = Path(told["LOCK"])
fd = os.open(lock_file, os.O_RDWR | os.O_CREAT)
fcntl.flock(fd, fcntl.LOCK_EX)
lock_file.with_suffix(".scratch").mkdir()
os.mkdir(told["SOCKETS"])
Path("java").write_text(told["JAVA"] + " " + told["JAVA_OPTIONS"])
mode = sys.argv[1]
if mode == "dies":
    sys.exit(7)
if mode == "heir":
    # The JVM: it inherits the lock and outlives the process for a moment.
    import subprocess
    rope = os.pipe()
    subprocess.Popen([sys.executable, "-c", "import sys, os; os.read(0, 1)"], stdin=rope[0], pass_fds=(fd, rope[1]))
if mode != "silent":
    os.write(1, b"READY\\n")
sys.stdin.read()
"""


class World:
    """Hosts on one run directory, and every driver that they started."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.started: list[subprocess.Popen[bytes]] = []
        self.hosts: list[EmbeddedHost] = []
        self.mode("ready")

    def mode(self, mode: str) -> None:
        """Of those that are started from now on."""
        self._mode = mode

    def popen(self, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        if self._mode == "refused":
            raise OSError("no more processes")
        assert command[4] == "app.driver"
        self.started.append(subprocess.Popen([sys.executable, "-c", STAND_IN, self._mode], **options))
        return self.started[-1]

    def host(self, warm_drivers: int = 1, **options: Any) -> EmbeddedHost:
        java = Java("/checked/java", "21")
        options = {"slots": 4, "memory_mb": 512, "java_options": "-Da='b c'", **options}
        self.hosts.append(EmbeddedHost(self.run_dir, java=java, **options))
        self.hosts[-1]._warm_wanted = warm_drivers
        return self.hosts[-1]

    def left(self) -> list[str]:
        """What drivers left, their logs apart."""
        return sorted(path.name for path in self.run_dir.glob("driver-*") if path.suffix != ".log")

    def close(self) -> None:
        for host in self.hosts:
            host.close()
        for process in self.started:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
        for lock_file in self.run_dir.glob("driver-*.lock"):
            processes.tidy(lock_file)


async def until(condition: Callable[[], Any]) -> Any:
    deadline = asyncio.get_running_loop().time() + 20
    while not (found := condition()):
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.005)
    return found


@pytest_asyncio.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    made = World(tmp_path)
    monkeypatch.setattr(processes, "subprocess", SimpleNamespace(Popen=made.popen, PIPE=subprocess.PIPE))
    monkeypatch.setattr(embedded, "_REFILL_BACKOFF_S", (0.01, 0.02, 600.0))
    monkeypatch.setattr(embedded, "_IDLE_S", 0.01)
    monkeypatch.setattr(embedded, "can_be_undone", lambda: True)
    yield made
    made.close()


async def warm_one(host: EmbeddedHost) -> None:
    host.refill()
    await until(lambda: host.warm_ready == 1)


async def test_drivers_do_not_inherit_the_settings_of_the_server(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code of jobs runs in them."""
    monkeypatch.setenv("SLOTWISE_DATABASE_URL", "postgresql://me:s3cret@db/jobs")
    monkeypatch.setenv("SLOTWISE_TOKEN", "s3cret")
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    await warm_one(world.host())
    inherited = Path(f"/proc/{world.started[0].pid}/environ").read_bytes()  # noqa: ASYNC240 - of memory
    assert b"HADOOP_CONF_DIR=/etc/hadoop\0" in inherited
    assert b"s3cret" not in inherited and b"\0SLOTWISE_" not in inherited


async def test_a_warm_driver_is_taken_and_replaced_when_asked(world: World) -> None:
    host = world.host()
    await warm_one(host)
    host.refill()
    assert len(world.started) == 1, "as many as wanted"
    taken = await host.acquire()
    assert (taken.ref.pid, host.warm_ready) == (world.started[0].pid, 0)
    await warm_one(host)
    assert len(world.started) == 2
    assert (world.run_dir / "java").read_text() == "/checked/java -Xmx512m '-Da=b c'"


async def test_as_many_as_wanted_warm_up_one_after_the_other(world: World) -> None:
    host = world.host(warm_drivers=0)
    host.refill()
    assert world.started == []
    host.keep_warm(3)
    assert len(world.started) == 1
    await until(lambda: host.warm_ready == 3)
    assert len(world.started) == 3


async def test_one_that_still_warms_up_is_not_waited_for(world: World) -> None:
    host = world.host(warm_drivers=2)
    await warm_one(host)
    await until(lambda: len(world.started) == 2 and host.warm_ready == 2)
    world.mode("silent")
    ready = [(await host.acquire()).ref.pid for _ in range(2)]
    host.refill()
    await until(lambda: len(world.started) == 3)
    host.refill()
    taken = await host.acquire()
    assert [process.pid for process in world.started] == [*ready, world.started[2].pid, taken.ref.pid]
    assert world.started[2].poll() is None, "it takes nothing from the job"


async def test_a_warm_up_that_would_take_the_processor_gives_way_and_comes_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = [90.0]
    monkeypatch.setattr(embedded, "can_be_undone", lambda: False)
    monkeypatch.setattr(embedded, "psutil", SimpleNamespace(cpu_percent=lambda: busy[-1]))
    monkeypatch.setattr(embedded, "_IDLE_S", 0.01)
    host = world.host()
    world.mode("silent")
    host.refill()
    assert len(world.started) == 1, "there is no job, so it can begin on a busy host"
    taken = await host.acquire()
    await until(lambda: world.started[0].poll() == -signal.SIGKILL and len(world.left()) == 2)
    looks: list[None] = []
    monkeypatch.setattr(host, "_warm_one_up_if_idle", counted(looks, host._warm_one_up_if_idle))
    await until(lambda: len(looks) > 2)
    assert [process.pid for process in world.started[1:]] == [taken.ref.pid], "the host is busy"
    world.mode("ready")
    busy.append(10.0)
    await until(lambda: host.warm_ready == 1)
    assert len(world.started) == 3


def counted(calls: list[None], function: Callable[[], None]) -> Callable[[], None]:
    def call() -> None:
        calls.append(None)
        function()

    return call


async def test_what_is_ready_is_as_others_are_again(world: World) -> None:
    host = world.host()
    world.mode("silent")
    host.refill()
    assert os.sched_getscheduler(world.started[0].pid) == os.SCHED_IDLE
    world.started[0].kill()
    world.mode("ready")
    await until(lambda: host.warm_ready == 1)
    assert os.sched_getscheduler(world.started[1].pid) == os.SCHED_OTHER


async def test_options_that_only_a_new_jvm_can_take_start_a_new_driver(world: World) -> None:
    host = world.host()
    await warm_one(host)
    (world.run_dir / "java").unlink()
    await host.acquire(("-Dmine=1",))
    assert len(world.started) == 2 and host.warm_ready == 1
    text = await until(lambda: (p := world.run_dir / "java").exists() and p.read_text())
    assert text.endswith("-Dmine=1"), "the job's options come last, so they win"


async def test_no_driver_at_all_is_told(world: World) -> None:
    host = world.host()
    world.mode("refused")
    with pytest.raises(DriverLaunchError, match="no more processes"):
        await host.acquire()
    host.refill()
    world.mode("ready")
    await until(lambda: host.warm_ready == 1)


async def test_a_driver_that_cannot_be_watched_does_not_live_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = world.host()

    def refused(_: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", refused)
        with pytest.raises(DriverLaunchError, match="Too many open files"):
            await host.acquire()
        assert world.started[0].returncode == -signal.SIGKILL
        host.refill()
    await until(lambda: host.warm_ready == 1)


async def test_a_warm_driver_that_ends_is_tidied_up_and_replaced(world: World) -> None:
    host = world.host()
    await warm_one(host)
    first = world.left()
    sockets = processes._socket_dir(first[0].partition(".")[0])
    assert [name.partition(".")[2] for name in first] == ["lock", "scratch"] and sockets.is_dir()
    world.started[0].send_signal(signal.SIGKILL)
    await until(lambda: len(world.started) == 2 and host.warm_ready == 1)
    await until(lambda: not set(first) & set(world.left()))
    assert not sockets.exists()
    assert (await host.acquire()).ref.pid == world.started[1].pid


async def test_a_warm_driver_whose_jvm_lives_is_tidied_up_when_that_is_gone(world: World) -> None:
    host = world.host(warm_drivers=1)
    world.mode("heir")
    await warm_one(host)
    lock_file, scratch = world.left()
    world.mode("ready")
    world.started[0].send_signal(signal.SIGKILL)
    await until(lambda: host.warm_ready == 1 and len(world.started) == 2)
    assert {lock_file, scratch} <= set(world.left()), "something of it lives"
    os.killpg(world.started[0].pid, signal.SIGKILL)
    await until(lambda: not {lock_file, scratch} & set(world.left()))


async def test_warm_drivers_that_keep_dying_are_started_less_and_less_until_one_lives(
    world: World,
) -> None:
    host = world.host()
    world.mode("dies")
    host.refill()
    await until(lambda: len(world.started) == 3 and host._retry is not None)
    assert host._failures == 3, "the next one would be started in ten minutes"
    host.refill()
    assert len(world.started) == 3, "a refill does not go around the wait"
    await until(lambda: world.left() == [])
    host._retry.cancel()  # type: ignore[union-attr]
    host._retry = None
    world.mode("ready")
    await warm_one(host)
    assert host._failures == 0
    world.started[-1].send_signal(signal.SIGKILL)
    await until(lambda: len(world.started) == 5 and host.warm_ready == 1)


async def test_a_dead_warm_driver_is_not_given_away(world: World) -> None:
    host = world.host()
    await warm_one(host)
    (warm,) = host._warm
    warm._exited.set_result(-9)
    taken = await host.acquire()
    assert taken.ref.pid == world.started[1].pid


async def test_a_driver_is_adopted_while_anything_of_it_lives(world: World) -> None:
    first = world.host()
    world.mode("heir")
    await warm_one(first)
    taken = await first.acquire()
    first.close()
    second = world.host()
    adopted = second.adopt(taken.ref)
    assert isinstance(adopted, LocalDriver)
    with pytest.raises(DriverLaunchError, match="was adopted"):
        await adopted.assign(world.run_dir / "spec.json")
    world.started[0].kill()
    world.started[0].wait()
    assert not is_running(taken.ref.pid, taken.ref.pid_started_at)
    half_dead = second.adopt(taken.ref)
    assert half_dead is not None, "its lock is held"
    await half_dead.kill()
    async with asyncio.timeout(20):
        await adopted.gone()
    assert second.adopt(taken.ref) is None
    assert world.left() == []


async def test_another_process_with_the_same_pid_is_not_the_driver(world: World) -> None:
    host = world.host()
    await warm_one(host)
    ref = (await host.acquire()).ref
    assert is_running(ref.pid, ref.pid_started_at)
    assert not is_running(ref.pid, ref.pid_started_at - 60)


async def test_a_host_that_closes_leaves_drivers_alone_and_starts_no_more(world: World) -> None:
    host = world.host()
    await warm_one(host)
    taken = await host.acquire()
    host.close()
    host.refill()
    assert len(world.started) == 1 and is_running(taken.ref.pid, taken.ref.pid_started_at)
    assert filelocks.is_held(taken.ref.lock_file)


async def test_a_start_sweeps_what_died_while_nobody_looked(world: World) -> None:
    host = world.host()
    await warm_one(host)
    host.close()
    dead = world.run_dir / "driver-20260101-000000-deadbeef.lock"
    dead.touch()
    dead.with_suffix(".scratch").mkdir()
    alive = world.left()[-2:]
    world.host()
    assert world.left() == alive

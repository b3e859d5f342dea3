"""What happens in `tests.acceptance.chaos`, drawn from a seed."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import psutil

from app.cluster.standalone.daemons import DevCluster
from tests.acceptance.members import Server, Servers
from tests.databases import PostgresServer

LEASE_S = 3.0
LOCK = b"_SLOTWISE_DRIVER_LOCK="
WORKER_CORES = 2
EXECUTOR_MEMORY_MB = 512


def living_drivers(data_dir: Path) -> dict[int, str]:
    """The driver of each process that can write a checkpoint, by pid: its Python process and its JVM."""
    found = {}
    prefix = LOCK + os.fsencode(data_dir)
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            variables = (entry / "environ").read_bytes().split(b"\0")
            lock = next((each for each in variables if each.startswith(prefix)), None)
            command = (entry / "cmdline").read_bytes() if lock is not None else b""
            if lock is not None and (b"app.driver" in command or b"java" in command.split(b"\0")[0]):
                found[int(entry.name)] = Path(os.fsdecode(lock.removeprefix(LOCK))).stem
    return found


class Chaos:
    """What happens, drawn from ``rng``."""

    def __init__(
        self,
        servers: Servers,
        postgres: PostgresServer,
        rng: random.Random,
        count: int,
        cluster: DevCluster | None,
    ) -> None:
        self.happened: Counter[str] = Counter()
        self._servers = servers
        self._postgres = postgres
        self._rng = rng
        self.up: list[Server] = [servers.start() for _ in range(count)]
        self._count = count
        self._cluster = cluster

    def alive(self) -> list[Server]:
        """Those that a client may find; one that is stopped is among them."""
        return list(self.up)

    def one(self) -> None:
        """One thing happens, and is over."""
        weights = {
            self.kill_server: 3,
            self.stop_server: 2,
            self.restart_postgres: 2,
            self.kill_driver: 2,
            self.kill_python_worker: 1,
        }
        if self._cluster is not None:
            weights |= {self.kill_executor: 2, self.kill_spark_worker: 1}
        (action,) = self._rng.choices([*weights], weights=[*weights.values()])
        self.happened[action.__name__] += 1
        action()

    def kill_server(self) -> None:
        doomed = self._rng.choice(self.up)
        self.up.remove(doomed)
        doomed.kill()
        time.sleep(self._rng.uniform(0.0, 5.0))
        self.restart()

    def stop_server(self) -> None:
        stopped = self._rng.choice(self.up)
        stopped.stop()
        time.sleep(self._rng.uniform(LEASE_S + 1.0, 3 * LEASE_S))
        stopped.go_on()

    def restart_postgres(self) -> None:
        self._postgres.kill()
        time.sleep(self._rng.uniform(0.0, 4.0))
        self._postgres.launch()

    def kill_driver(self) -> None:
        """Its Python process, or its JVM."""
        found = living_drivers(self._servers.data_dir)
        if found:
            kill(self._rng.choice(sorted(found)))

    def kill_python_worker(self) -> None:
        """One of a driver, or of an executor."""
        parents = [*living_drivers(self._servers.data_dir), *self._executors()]
        workers = {
            child.pid
            for pid in parents
            for child in children_of(pid)
            if any("pyspark" in word for word in command_of(child))
        }
        if workers:
            kill(self._rng.choice(sorted(workers)))

    def kill_executor(self) -> None:
        executors = self._executors()
        if executors:
            kill(self._rng.choice(executors))

    def kill_spark_worker(self) -> None:
        """One of the cluster, with its executors; another one comes."""
        assert self._cluster is not None
        doomed = self._rng.choice(self._cluster.workers)
        self._cluster.kill(doomed.name)
        time.sleep(self._rng.uniform(0.0, 5.0))
        add_worker(self._cluster)

    def _executors(self) -> list[int]:
        workers = () if self._cluster is None else self._cluster.workers
        return sorted(
            child.pid for worker in workers for child in children_of(worker.pid) if is_executor(child)
        )

    def restart(self) -> None:
        """As many servers as there should be. One that cannot start (its database is away) is tried again."""
        for _ in range(20):
            if len(self.up) >= self._count:
                return
            try:
                self.up.append(self._servers.start())
            except AssertionError:
                time.sleep(1.0)
        raise AssertionError("a server cannot be started again")


def add_worker(cluster: DevCluster) -> None:
    cluster.add(cores=WORKER_CORES, memory_mb=WORKER_CORES * EXECUTOR_MEMORY_MB)


def children_of(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return list(psutil.Process(pid).children(recursive=True))
    return []


def command_of(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return list(process.cmdline())
    return []


def is_executor(process: psutil.Process) -> bool:
    return any("CoarseGrainedExecutorBackend" in word for word in command_of(process))


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)

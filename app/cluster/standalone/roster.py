"""The slots of a cluster, computed from the `/json/` page of its Spark master. Pure functions.

An executor has one core, so a slot is a core of a worker that has memory for one more executor. The page does not say
on which worker an application has its cores. So the slots of a worker are all that fit on it, and cores that
applications of others hold are a number of the whole cluster, which is kept off what is given to jobs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

ALIVE = "ALIVE"
_JOB_OF_APPLICATION = re.compile(r"(?: \[attempt (\d{1,15})\])? \[slotwise job ([0-9a-f]{32})\]$")
_VERSION = re.compile(r"""class="version\b[^>]*>\s*([^<\s]+)\s*<""")


class NotAMaster(ValueError):
    """The page is not that of a Spark master; the message is a sentence."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker that can run executors. ``memory_mb`` is what it offers to executors."""

    id: str
    host: str
    port: int
    webui: str
    cores: int
    cores_used: int
    memory_mb: int
    memory_used_mb: int

    def slots(self, executor_memory_mb: int) -> int:
        """How many executors fit on it."""
        return min(self.cores, self.memory_mb // executor_memory_mb)


@dataclass(frozen=True, slots=True)
class Application:
    """An application that the master runs, with the cores that it holds, or has run."""

    id: str
    name: str
    cores: int
    started_ms: int = 0


@dataclass(frozen=True, slots=True)
class Roster:
    """One look at a master. A master that recovers does not know yet who is there. ``url``: how it calls itself.
    ``ended``: applications that are over."""

    status: str
    workers: tuple[Worker, ...] = ()
    applications: tuple[Application, ...] = ()
    url: str = ""
    ended: tuple[Application, ...] = ()

    @property
    def is_alive(self) -> bool:
        return self.status == ALIVE

    def slots(self, executor_memory_mb: int) -> dict[str, int]:
        """The slots of each worker by its id."""
        return {worker.id: worker.slots(executor_memory_mb) for worker in self.workers}

    def newest_of(self, job_id: str, attempts: range) -> str | None:
        """The id of the application of a job that was started last, of those that began with one of ``attempts``."""
        every = (*self.applications, *self.ended)
        own = [one for one in every if job_of(one.name) == job_id and _attempt_of(one.name) in attempts]
        return max(own, key=lambda one: one.started_ms).id if own else None

    def withheld(self, is_ours: Callable[[str], bool], executor_memory_mb: int) -> tuple[int, int]:
        """The cores that applications hold which are not of jobs of ours (by job id), and the slots for whose executors
        they hold the memory."""
        ours = sum(one.cores for one in self.applications if is_ours(job_of(one.name) or ""))
        foreign = sum(one.cores for one in self.applications) - ours
        if not foreign:
            return 0, 0
        free = sum(
            max(
                0, min(one.cores - one.cores_used, (one.memory_mb - one.memory_used_mb) // executor_memory_mb)
            )
            for one in self.workers
        )
        beyond_reach = sum(self.slots(executor_memory_mb).values()) - ours - free
        return foreign, max(0, beyond_reach - foreign)


def too_small(workers: Iterable[Worker], executor_memory_mb: int) -> list[str]:
    """A sentence for each worker that has cores for which it has no memory."""
    return [
        f"Worker {one.id} offers {fitting} of its {one.cores} core(s): it has {one.memory_mb} MB for executors, and "
        f"each takes {executor_memory_mb} MB (cluster_executor_memory_mb)."
        for one in workers
        if (fitting := one.memory_mb // executor_memory_mb) < one.cores
    ]


def in_others_hands(cores: int, slots: int) -> list[str]:
    """Sentences on what `Roster.withheld` says; none if it is nothing."""
    told = []
    if cores:
        told.append(f"{cores} core(s) are in the hands of applications that are not jobs of this server.")
    if slots:
        told.append(f"They hold the memory of the executors of {slots} more slot(s), too.")
    return told


def application_name(job_name: str, job_id: str, attempt: int) -> str:
    """The name under which the master shows a job. An older server that shares the cluster knows its end."""
    return f"{job_name} [attempt {attempt}] [slotwise job {job_id}]"


def job_of(name: str) -> str | None:
    """The id of the job whose application has this name; None for an application of others."""
    found = _JOB_OF_APPLICATION.search(name)
    return found.group(2) if found else None


def _attempt_of(name: str) -> int:
    """The attempt with which an application of a job began; 0 if an older server named it."""
    found = _JOB_OF_APPLICATION.search(name)
    return int(found.group(1) or 0) if found else 0


def version_on(page: str) -> str:
    """The version of Spark on the page of a master for people; empty if it has none."""
    found = _VERSION.search(page)
    return found.group(1) if found else ""


def read_roster(document: Any) -> Roster:
    """What the `/json/` page of a master says.

    Workers that are dead or decommissioned are not in it: executors on them are gone, or about to be. One that is
    `UNKNOWN` to a master that recovers is told apart by the status of the master.

    Raises:
        NotAMaster: it is some other document.
    """
    try:
        workers = [_worker(entry) for entry in document["workers"] if entry["state"] == ALIVE]
        applications, ended = (
            tuple(
                Application(
                    str(entry["id"]), str(entry["name"]), int(entry["cores"]), int(entry.get("starttime", 0))
                )
                for entry in entries
            )
            for entries in (document["activeapps"], document.get("completedapps", ()))
        )
        status, url = str(document["status"]), str(document.get("url", ""))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise NotAMaster("The answer is not the page of a Spark master.") from error
    return Roster(status, tuple(workers), applications, url, ended)


def _worker(entry: Mapping[str, Any]) -> Worker:
    return Worker(
        id=str(entry["id"]),
        host=str(entry["host"]),
        port=int(entry["port"]),
        webui=str(entry["webuiaddress"]),
        cores=int(entry["cores"]),
        cores_used=int(entry["coresused"]),
        memory_mb=int(entry["memory"]),
        memory_used_mb=int(entry["memoryused"]),
    )

"""What the demo does to the running job: up, down, beyond the slots, kill -9, to the end, stop."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.cli.client import Client
from app.cli.demo.data import rows_in_sink
from app.cli.demo.display import Display
from app.cli.errors import CliError, Refused
from app.cli.jobs import ended_as, wait_until_ended, wait_until_stopped
from app.cli.require import Wanted, declare
from app.cli.rescales import sentence_of
from app.cli.watch import Look, look

TICK_S = 0.5
STEP_TIMEOUT_S = 90.0
QUIET_LOOKS = 4
"""All rows are there, and no more come, when this many looks in a row see the same."""
STALLED_LOOKS = 120
"""Rows are missing when this many looks in a row see no new ones."""

UP: Wanted = {"flights": (1, 2), "routes": (1, 4), "named": (1, 4), "store": (1, 2)}
DOWN: Wanted = {"flights": (1, 1), "routes": (1, 2), "named": (1, 2), "store": (1, 1)}
BEYOND: Wanted = {"routes": (1, 8), "named": (1, 8), "store": (1, 2)}


@dataclass
class EndOfRows:
    """Tells, look by look, when the sink has what it will get: ``rows_total``, or less if rows are lost."""

    rows_total: int
    _rows_before: int = -1
    _quiet: int = 0

    def is_reached(self, rows: int) -> bool:
        """Of one more look at the sink."""
        self._quiet = self._quiet + 1 if rows == self._rows_before else 0
        self._rows_before = rows
        if rows >= self.rows_total:
            return self._quiet >= QUIET_LOOKS
        # Only when nothing comes for long are rows lost, and then the comparison is to say so.
        return self._quiet >= STALLED_LOOKS


@dataclass
class Scenario:
    """One run. ``done`` is what the report tells."""

    client: Client
    job_id: str
    sink: Path
    rows_total: int
    display: Display
    done: dict[str, Any] = field(default_factory=dict)
    rows_done: int = 0

    def run(self) -> None:
        """Play all of it.

        Raises:
            CliError: a step did not happen in time, or the job failed.
        """
        self._until("the first rows are in the sink", lambda _: self.rows_done > 0)
        self._at(0.08)
        self._rescale("up", UP)
        self._at(0.25)
        self._rescale("down", DOWN)
        self._at(0.40)
        self._rescale("beyond the slots", BEYOND)
        self._at(0.55)
        self._kill_driver()
        self._to_the_end()
        self._stop()

    def _look(self) -> Look:
        seen = look(self.client, self.job_id)
        self.rows_done = rows_in_sink(self.sink)
        self.display.tick(seen, self.rows_done, self.rows_total)
        if seen.ended:
            raise ended_as(self.client, self.job_id, seen.status)
        return seen

    def _until(self, what: str, reached: Callable[[Look], bool], timeout_s: float = STEP_TIMEOUT_S) -> Look:
        deadline = time.monotonic() + timeout_s
        while True:
            seen = self._look()
            if reached(seen):
                return seen
            if time.monotonic() > deadline:
                raise CliError(f"After {timeout_s:.0f} s this is still not true: {what}.", *seen.sentences)
            time.sleep(TICK_S)

    def _at(self, fraction: float) -> None:
        wanted = round(fraction * self.rows_total)
        self._until(f"{fraction:.0%} of the rows are in the sink", lambda _: self.rows_done >= wanted)

    def _rescale(self, name: str, wanted: Wanted) -> None:
        shown = ", ".join(f"{vertex}={lower}:{upper}" for vertex, (lower, upper) in wanted.items())
        self.display.step(f"PUT resource-requirements, {name}: {shown}")
        before = self._look()
        _, _, answer = declare(self.client, self.job_id, wanted, f"demo: {name}")
        record = self._ended(lambda one: one["rescaleUuid"] == answer["X-Slotwise-Rescale"])
        self.display.note(sentence_of(record))
        seen = self._look()
        for sentence in seen.sentences:
            self.display.note(sentence)
        self.done[name] = {
            "rescaleUuid": record["rescaleUuid"],
            "rung": record.get("rung"),
            "driverPidBefore": before.driver_pid,
            "driverPidAfter": seen.driver_pid,
            "explanation": list(seen.sentences),
        }

    def _ended(self, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The record of a rescale, once it has ended."""
        found: list[dict[str, Any]] = []

        def ended(seen: Look) -> bool:
            found[:] = [record for record in seen.rescales if is_it(record) and record["terminalState"]]
            return bool(found)

        self._until("the rescale has ended", ended)
        return found[0]

    def _kill_driver(self) -> None:
        before = self._look()
        pid = before.driver_pid
        if pid is None:
            raise CliError("The server does not say which process the driver is, so it cannot be killed.")
        self.display.step(f"kill -9 {pid}, the driver")
        killed = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        last = max((one["number"] for one in before.rescales), default=0)
        record = self._ended(lambda one: one["number"] == last + 1)
        rows_then = self.rows_done
        seen = self._until(
            "a new driver runs and writes",
            lambda now: now.status == "RUNNING" and now.driver_pid != pid and self.rows_done > rows_then,
        )
        self.display.note(f"{sentence_of(record)}; driver {pid} -> {seen.driver_pid}")
        self.done["kill"] = {
            "rescaleUuid": record["rescaleUuid"],
            "driverPidBefore": pid,
            "driverPidAfter": seen.driver_pid,
            "secondsToNewRows": round(time.monotonic() - killed, 1),
        }

    def _to_the_end(self) -> None:
        self.display.step("to the end of the year, until all rows are in the sink")
        end = EndOfRows(self.rows_total)

        self._until(
            "all rows are in the sink", lambda _: end.is_reached(self.rows_done), timeout_s=4 * STEP_TIMEOUT_S
        )

    def _stop(self) -> None:
        self.display.step("stop at a batch boundary")
        try:
            answer, _ = self.client.request("POST", f"/jobs/{self.job_id}/stop", body={})
            location = wait_until_stopped(self.client, self.job_id, str(answer["request-id"]))
        except Refused as refused:
            raise CliError("The job could not be stopped.", *refused.errors) from None
        state = wait_until_ended(self.client, self.job_id)
        self.display.note(f"{state}; checkpoint {location}")
        self.done["stop"] = {"status": state, "location": location}
        if state != "FINISHED":
            raise ended_as(self.client, self.job_id, state)

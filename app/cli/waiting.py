"""The wait of `submit --wait`: a live view on a terminal, otherwise a line for each change."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from math import inf

from rich.console import Console
from rich.status import Status
from rich.text import Text

from app.cli.client import Client, Json
from app.cli.errors import TimeIsOver
from app.cli.events import JobChanges
from app.cli.jobs import explanation_lines, last_failure_line, state_of
from app.cli.output import STATUS_STYLES, format_ms, printable, warn
from app.model.status import TERMINAL_STATUSES

_SHOWN_EVERY_S = 1.0
"""Sentences of an explanation have times that run."""
_DIGITS = re.compile(r"[0-9.]+( (ms|s|min|h|days)\b)?")


def wait_until_under_way(
    client: Client, job_id: str, timeout_s: float | None = None, tell: Callable[[str], None] | None = None
) -> Json:
    """Wait until the job has processed something, or has ended, or until ``timeout_s`` are over; its details.

    ``tell`` is given what happens meanwhile, line by line. Without it this is shown on stderr.
    """
    began_s = time.monotonic()
    with Waiting(began_s, tell) as waiting, JobChanges(client, job_id) as changes:
        while True:
            details = client.get(f"/jobs/{job_id}")
            if details["underWay"] or details["state"] in TERMINAL_STATUSES:
                return details
            left_s = inf if timeout_s is None else began_s + timeout_s - time.monotonic()
            if left_s <= 0:
                return details
            waiting.show(details, explanation_lines(client.get(f"/jobs/{job_id}/explanation")))
            changes.wait(min(_SHOWN_EVERY_S, left_s))


def not_under_way(details: Json, timeout_s: float) -> TimeIsOver:
    """What to say of a job whose time is over."""
    failure = last_failure_line(details)
    return TimeIsOver(
        f"The job {details['jid']} is {state_of(details)} and has processed nothing within {timeout_s:g} s. "
        "It goes on.",
        *([failure] if failure else []),
        f"See: slotwise explain {details['jid']}",
    )


class Waiting:
    """Sentences count as told if they differ from one that was told only in numbers with their units: times run."""

    def __init__(self, began_s: float, tell: Callable[[str], None] | None = None) -> None:
        self._began_s = began_s
        self._tell = tell or warn
        self._is_live = tell is None and sys.stderr.isatty()
        self._status: Status | None = None
        self._told: set[str] = set()
        self._last = ""

    def __enter__(self) -> Waiting:
        if self._is_live:
            self._status = Console(stderr=True).status("")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def show(self, details: Json, sentences: list[str]) -> None:
        state = state_of(details)
        if self._status is not None:
            waited = format_ms(1000 * int(time.monotonic() - self._began_s))
            text = Text.assemble((state, STATUS_STYLES.get(state, "")), f"  waiting for {waited}")
            for sentence in sentences:
                text.append(f"\n  {printable(sentence)}")
            self._status.update(text)
            return
        headline = f"{state} ..." if details["attempt"] < 2 else f"{state}, attempt {details['attempt']} ..."
        if headline != self._last:
            self._tell(headline)
        self._last = headline
        for sentence in sentences:
            kind = _DIGITS.sub("#", sentence)
            if kind not in self._told:
                self._told.add(kind)
                self._tell(f"  {sentence}")


class ClusterWatch:
    """Says once that a job waits for the cluster to be reachable, and once that it does not any more."""

    def __init__(self) -> None:
        self._is_told = False

    def look(self, supply: Json) -> None:
        """``supply``: that in the explanation of the job."""
        is_unreachable = supply["outOfSight"]
        if is_unreachable and not self._is_told:
            warn(f"Waiting on: {' '.join(supply['why'])} The request is stored; Ctrl-C does not undo it.")
        if self._is_told and not is_unreachable:
            warn("Waiting on: the cluster is reachable again.")
        self._is_told = is_unreachable

"""Bounds that wait for their deadline, for those who wait for what becomes of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from app.cli.client import Client, Headers
from app.cli.errors import CliError
from app.cli.output import say, say_wrapped
from app.cli.rescales import pending
from app.model.rescale import TriggerCause

Record = dict[str, Any]


class Held:
    """Bounds of ``version`` with a deadline. What ends while they wait is the outcome of something else: the job may
    take new slots by the former bounds, give slots back, or fail."""

    def __init__(self, client: Client, job_id: str, version: int | None) -> None:
        self._client = client
        self._job_id = job_id
        self._version = version
        self._asked: dict[str, Any] = {}
        self._own: dict[int, Record] = {}
        """By number, the records that the server named as theirs."""
        self._others: set[int] = set()
        """Numbers of records that had ended while the bounds waited."""

    def wait(self, records: list[Record]) -> bool:
        """Whether the bounds still wait, which is asked after ``records``."""
        own = [one for one in pending(self._client, self._job_id) if one["version"] == self._version]
        for one in own:
            self._others |= {record["number"] for record in records if record["terminalState"]}
            self._own |= {
                record["number"]: record for record in records if record["number"] == one["rescale"]
            }
            if not self._asked:
                declared = self._declared()
                self._asked = {vertex: declared[vertex] for vertex in one["former"]}
        return bool(own)

    def outcomes(self, records: list[Record], *, over: bool) -> list[Record]:
        """Which of ``records`` may tell what became of the bounds, now that they wait no longer.

        Raises:
            CliError: none can: other bounds were declared, or the job has ended.
        """
        own = {**self._own, **{one["number"]: one for one in records if one["number"] in self._own}}
        for record in records:
            if undoes(record, own):
                return [own[record["rollbackOf"]]]
        if not self._others:
            return records
        # Once: those that are declared later say nothing of the wait.
        asked, self._asked = self._asked, {}
        declared = self._declared() if asked else {}
        if any(declared[vertex] != bounds for vertex, bounds in asked.items()):
            raise CliError("Other bounds were declared while these waited for their deadline.")
        left = [one for one in records if one["number"] not in self._others]
        if over and not left:
            raise CliError("The job ended while the bounds waited for their deadline.")
        return left

    def _declared(self) -> dict[str, Any]:
        vertices = self._client.get(f"/jobs/{self._job_id}/resource-requirements")
        return {vertex: own["parallelism"] for vertex, own in vertices.items()}


def undoes(record: Record, numbers: Collection[int]) -> bool:
    """Whether ``record`` brought the bounds before one of the rescales ``numbers`` back, not only their parallelism."""
    return record.get("rollbackOf") in numbers and record["triggerCause"] == TriggerCause.UPDATE_REQUIREMENT


def with_earlier_deadlines(client: Client, job_id: str, answer: Headers, names: Iterable[str]) -> list[str]:
    """Which of the vertices ``names`` wait for an earlier deadline on, as the headers ``answer`` say."""
    _, _, listed = answer.get("X-Slotwise-Deadline", "").partition('vertices="')
    ids = listed.rstrip('"').split(",") if listed else []
    named = client.vertices_named(job_id, names) if ids else {}
    return [name for name, vertex_id in named.items() if vertex_id in ids]


def show_unchanged(told: dict[str, Any]) -> None:
    """The server says whether they wait, and what became of a deadline."""
    say(f"The bounds are these already (version {told['version']}); nothing changed.")
    for sentence in told["explanation"] or []:
        say_wrapped(sentence)

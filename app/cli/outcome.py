"""What becomes of declared bounds, for `slotwise require --wait`.

The answer of the PUT names the rescale that the bounds lead to. In two cases a later record tells what became of
them: after a failover, whose own record brings them into force; and if they wait for their deadline. Meanwhile the job
may take slots by the bounds that hold, give slots back, or fail. Once they are applied, the queue names the record by
which that was done; when they have left the queue, they are in force or dropped.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from app.cli.client import Client, Json
from app.cli.errors import CliError, Refused
from app.cli.events import JobChanges
from app.cli.output import warn
from app.cli.rescales import history
from app.cli.waiting import ClusterWatch
from app.model.rescale import TerminalState, TerminatedReason, TriggerCause
from app.model.status import TERMINAL_STATUSES

_RECORDS = 20
"""The newest ones. More do not begin between two looks."""
_FAILOVER = TerminatedReason.JOB_FAILOVER_RESTARTING
_OVERTAKEN = TerminatedReason.RESOURCE_REQUIREMENTS_UPDATED
Record = dict[str, Any]


class Outcome(NamedTuple):
    """``record``: the rescale, which has ended; None if none followed. ``back``: the record of the way back, if the
    rescale was taken back. ``successor``: the record that took its place, if one did."""

    record: Record | None = None
    back: Record | None = None
    successor: Record | None = None


def wait_for_outcome(
    client: Client, job_id: str, version: int | None, rescale: str | None, *, has_deadline: bool
) -> Outcome:
    """What has become of the bounds of ``version``. ``rescale``: the uuid of the record that they lead to.

    Raises:
        CliError: while the bounds waited for their deadline others were declared, or the job ended; or the record is
            not kept.
    """
    declared, watch = _Declared(version, has_deadline=has_deadline), ClusterWatch()
    with JobChanges(client, job_id) as changes:
        while True:
            # Asked before the records: a job that has ended makes no further ones.
            explained = client.get(f"/jobs/{job_id}/explanation")
            watch.look(explained["supply"])
            records = history(client, job_id, limit=_RECORDS)[::-1]
            # A server that was started anew, and knows the request again, does not name it. There may be none yet.
            rescale = rescale or (records[-1]["rescaleUuid"] if records else None)
            own = next((one for one in records if one["rescaleUuid"] == rescale), None)
            if own is None and rescale:
                own = _details(client, job_id, rescale)
            outcome = declared.look(explained, own, records)
            if outcome is not None:
                return outcome
            changes.wait()


def _details(client: Client, job_id: str, rescale: str) -> Record | None:
    """None if there is no such record, yet or any more."""
    try:
        return dict(client.get(f"/jobs/{job_id}/rescales/details/{rescale}"))
    except Refused as error:
        if error.status != 404:
            raise
        return None


class _Declared:
    """Bounds that were declared as ``version``. ``has_deadline``: they may wait in the queue."""

    def __init__(self, version: int | None, *, has_deadline: bool) -> None:
        self._version, self._has_deadline = version, has_deadline
        self._own: Record | None = None
        """Their record, as it was last seen."""
        self._numbers: set[int] = set()
        """Of the records that the server names as theirs."""
        self._asked: dict[str, Json] = {}
        """The bounds that were seen to wait for their deadline, by vertex."""
        self._ended: set[int] = set()
        self._others: set[int] = set()
        """The numbers of records that had ended while they waited, which tell of something else."""
        self._told: set[int] = set()

    def look(self, explained: Json, own: Record | None, records: list[Record]) -> Outcome | None:
        """None while it is not certain. ``own``, and the newest ``records``, oldest first, were read after
        ``explained``."""
        over = explained["status"] in TERMINAL_STATUSES
        was, self._own = self._own, own or self._own
        queued = next((one for one in explained["queued"] if one["version"] == self._version), None)
        if queued is not None:
            self._others = self._ended
            self._asked |= queued["bounds"]
            self._numbers |= {queued["rescale"]} - {None}
        if own is None and (was is None or not was["terminalState"]):
            if was is None and (over or explained["schedulerState"] == "Created"):
                return Outcome() if over else None
            raise CliError(
                "How the rescale ended is not known: its record is not kept any more "
                "(web.adaptive-scheduler.rescale-history.size, history_max_age_days)."
            )
        assert self._own is not None
        first = self._own["number"]
        self._numbers.add(first)
        since = [one for one in records if one["number"] >= first]
        if not since or since[0]["number"] > first:
            since.insert(0, self._own)
        self._ended = {one["number"] for one in since if one["terminalState"]}
        found = None if queued else self._found(explained, since, over=over)
        self._tell_of_failovers(since, found)
        return found

    def _found(self, explained: Json, since: list[Record], *, over: bool) -> Outcome | None:
        back: Record | None
        for back in since:
            if back["rollbackOf"] in self._numbers and is_undoing(back):
                own = next((one for one in since if one["number"] == back["rollbackOf"]), self._own)
                return Outcome(own, back)
        left = [one for one in since if one["number"] not in self._others]
        if not _hold(explained, self._asked):
            raise CliError("Other bounds were declared while these waited for their deadline.")
        if self._asked or (self._has_deadline and _is_told(self._own)):
            # They have left the queue, and hold: their plan is in force.
            left = [one for one in left if not one["terminalState"] or _is_of_rescale(one)][-1:]
        if over and not left:
            raise CliError("The job ended while the bounds waited for their deadline.")
        for record in left or since[-1:]:
            back = next((one for one in since if one["rollbackOf"] == record["number"]), None)
            if not record["terminalState"] or not (back is None or back["terminalState"] or over):
                # A later one tells of other bounds, and a way back has ended only once the job runs again.
                return None
            if back is not None or over or record["terminatedReason"] != _FAILOVER:
                is_overtaken = record["terminatedReason"] == _OVERTAKEN
                # Between a record and the newest ones there may be others that were not read.
                later = (one for one in since if is_overtaken and one["number"] == record["number"] + 1)
                return Outcome(record, back, next(later, None))
        return None

    def _tell_of_failovers(self, since: list[Record], found: Outcome | None) -> None:
        """A job that fails again and again is not waited for in silence."""
        for record in since:
            number = record["number"]
            if found is not None and record is found.record:
                return
            if record["terminatedReason"] == _FAILOVER and number not in self._told:
                self._told.add(number)
                why = str(record.get("message") or "the job failed meanwhile").partition("\n")[0]
                warn(f"Waiting on: record {number} ended by a failover ({why})")


def is_undoing(back: Record) -> bool:
    """Whether a way back takes the bounds back, and not only their parallelism."""
    return bool(back["triggerCause"] == TriggerCause.UPDATE_REQUIREMENT)


def _is_told(record: Record | None) -> bool:
    """Whether the record has ended as it began: others were open, and its bounds wait, or have another one."""
    return record is not None and record["endTimestampInMillis"] == record["startTimestampInMillis"]


def _is_of_rescale(record: Record) -> bool:
    carried_out = record["terminalState"] in (TerminalState.COMPLETED, TerminalState.FAILED)
    return carried_out and record["rollbackOf"] is None


def _hold(explained: Json, asked: dict[str, Json]) -> bool:
    """Whether the bounds ``asked`` hold, as far as their vertices are in the graph."""
    declared = explained["vertices"]
    return all(
        declared[vertex][name] == own[name]
        for vertex, own in asked.items()
        if vertex in declared
        for name in own
    )

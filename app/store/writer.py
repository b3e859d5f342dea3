"""The one writer: a thread that turns queued units of work into transactions.

Whatever is queued when the thread is free becomes one transaction (group commit), so that concurrent callers share
the wait for the disk. Each caller hears about his own unit only:

* a unit whose lease is lost is left out, and its caller hears `LeaseLost`;
* when the merged transaction is refused, each unit is tried in a transaction of its own, so that the one that breaks
  a rule fails alone;
* when the database is away (connection lost, deadlock), the group is tried again until its deadline. A commit whose
  outcome is unknown is looked up by the token of the unit before it is tried again.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from app.store import merged_units
from app.store.engine import BUSY_TIMEOUT_MS, ConnectionLost, Database, Transient, translate
from app.store.errors import ConstraintViolated, OutcomeUnknown, StoreError, StoreUnavailable
from app.store.merged_units import ChainBroken, MergedUnits
from app.store.openfiles import OpenFiles
from app.store.writes import UnitOfWork

log = logging.getLogger(__name__)

GROUP_MAX = 256
RETRY_FIRST_S = 0.05
RETRY_MAX_S = 1.0

_CLOSED = "The store is closed."


@dataclass(slots=True, eq=False)
class Ticket:
    """A unit of work, or a function to run in a transaction of its own, and what became of it."""

    unit: UnitOfWork | None
    call: Callable[[Connection], Any] | None
    deadline: float
    future: asyncio.Future[Any] | None = None
    loop: asyncio.AbstractEventLoop | None = None
    done: bool = False
    result: Any = None
    error: BaseException | None = None

    def succeed(self, result: Any = None) -> None:
        self.done, self.result = True, result

    def fail(self, error: BaseException) -> None:
        self.done, self.error = True, error


@dataclass(slots=True)
class _Doubt:
    """A transaction whose commit was begun and not answered: the tokens that it leaves per job, and who is in it."""

    tokens: dict[str, str]
    tickets: list[Ticket]


@dataclass(slots=True)
class Writer:
    """See the module. ``inline``: no thread; the caller's thread does the work before `submit` returns."""

    engine: Engine
    database: Database
    owner: str
    lease_ttl_ms: int
    deadline_s: float
    inline: bool = False
    groups: int = 0
    units: int = 0
    problem: StoreUnavailable | None = None  # of the last write; None once one has succeeded
    _queue: queue.SimpleQueue[Ticket | None] = field(default_factory=queue.SimpleQueue)
    _connection: Connection | None = None
    files: OpenFiles = field(default_factory=OpenFiles)
    _doubt: _Doubt | None = None
    _thread: threading.Thread | None = None
    _gate: threading.Lock = field(default_factory=threading.Lock)
    _closed: bool = False

    def open(self) -> None:
        """Connect, so that an unreachable database is reported at once.

        Raises:
            StoreUnavailable: it cannot be.
        """
        try:
            self.connected()
        except SQLAlchemyError as error:
            raise translate(error, self.database) from error
        if self.database.path is not None and not self.inline:
            self.files.open(self.database.path, BUSY_TIMEOUT_MS)

    def start(self) -> None:
        if not self.inline:
            self._thread = threading.Thread(target=self._run, name="slotwise-store-writer", daemon=True)
            self._thread.start()

    async def submit(
        self, *, unit: UnitOfWork | None = None, call: Callable[[Connection], Any] | None = None
    ) -> Any:
        """Queue one of them and wait for its outcome. Cancelling the wait does not take it back."""
        ticket = Ticket(unit, call, time.monotonic() + self.deadline_s)
        if self.inline:
            if self._closed:
                raise StoreUnavailable(_CLOSED)
            self._process([ticket])
            if ticket.error is not None:
                raise ticket.error
            return ticket.result
        ticket.loop = asyncio.get_running_loop()
        ticket.future = ticket.loop.create_future()
        with self._gate:
            if self._closed:
                raise StoreUnavailable(_CLOSED)
            self._queue.put(ticket)
        return await ticket.future

    def close(self) -> None:
        """Finish what is queued, then end. Blocks."""
        with self._gate:
            if self._closed:
                return
            self._closed = True
            self._queue.put(None)
        if self._thread is not None:
            self._thread.join()
        self.drop_connection()
        self.files.close()

    def _run(self) -> None:
        while True:
            first = self._queue.get()
            if first is None:
                break
            tickets = [first]
            item, last = None, False
            while len(tickets) < GROUP_MAX:
                try:
                    item = self._queue.get_nowait()
                except queue.Empty:
                    break
                if item is None:
                    last = True
                    break
                tickets.append(item)
            self._process(tickets)
            del first, item, tickets
            if last:
                break

    def _process(self, tickets: Sequence[Ticket]) -> None:
        """Units that follow each other are committed together; a function has its own turn, in order."""
        group: list[Ticket] = []
        for ticket in tickets:
            if ticket.unit is not None:
                group.append(ticket)
                continue
            self._finish(group)
            group = []
            self._finish([ticket])
        self._finish(group)

    def _finish(self, tickets: list[Ticket]) -> None:
        if not tickets:
            return
        try:
            self._persist(tickets)
        except BaseException as error:
            # Nothing may kill the writer: every waiting caller must get the error.
            log.exception("The store's writer met a defect.")
            self.drop_connection()
            for ticket in tickets:
                if not ticket.done:
                    ticket.fail(error)
        _publish(tickets)

    def _persist(self, tickets: Sequence[Ticket]) -> None:
        """Try until each ticket is done or its deadline has passed."""
        delay_s = RETRY_FIRST_S
        while pending := [ticket for ticket in tickets if not ticket.done]:
            try:
                if self._doubt is not None:
                    self._settle(self._doubt)
                elif pending[0].unit is None:
                    self._call(pending[0])
                else:
                    self._commit(pending)
                continue
            except (ConnectionLost, Transient) as error:
                if isinstance(error, ConnectionLost):
                    self.drop_connection()
                now = time.monotonic()
                for ticket in pending:
                    if not ticket.done and (now + delay_s >= ticket.deadline or self.inline):
                        ticket.fail(self._outcome(ticket, error))
            except StoreError as error:
                for ticket in pending:
                    if not ticket.done:
                        ticket.fail(self._outcome(ticket, error))
            if not all(ticket.done for ticket in tickets):
                time.sleep(delay_s)
                delay_s = min(2 * delay_s, RETRY_MAX_S)
        self._doubt = None

    def _outcome(self, ticket: Ticket, error: StoreError) -> StoreError:
        """What the caller hears. A unit once in doubt stays so until the database could be asked about it."""
        unit = ticket.unit
        if isinstance(error, StoreUnavailable):
            self.problem = error
        if unit is None or not isinstance(error, StoreUnavailable):
            return error
        if self._doubt is not None and ticket in self._doubt.tickets:
            unit.in_doubt = True
        if not unit.in_doubt:
            return error
        return OutcomeUnknown(f"{error} It is not known whether the last change was recorded.")

    def _settle(self, doubt: _Doubt) -> None:
        """Find out what became of a transaction whose commit was not answered.

        It was all or nothing, so one job that has the token tells. Where none has, it is tried again; should other
        owners have taken all those jobs since, the fence refuses it.
        """
        with _Transaction(self) as connection:
            stored = merged_units.stored_tokens(connection, list(doubt.tokens))
        self._doubt = None
        if any(stored.get(job_id, (0, ""))[1] == token for job_id, token in doubt.tokens.items()):
            for ticket in doubt.tickets:
                ticket.succeed()

    def _call(self, ticket: Ticket) -> None:
        assert ticket.call is not None
        with _Transaction(self) as connection:
            result = ticket.call(connection)
        ticket.succeed(result)

    def _commit(self, tickets: Sequence[Ticket]) -> None:
        try:
            self._transaction(tickets)
        except ConnectionLost:
            raise
        except Exception as error:
            self._doubt = None
            left = [ticket for ticket in tickets if not ticket.done]
            if isinstance(error, Transient):
                raise
            if isinstance(error, StoreUnavailable):
                for ticket in left:
                    ticket.fail(self._outcome(ticket, error))
            elif len(left) > 1:
                for ticket in left:
                    self._commit([ticket])
            elif left:
                self._refuse(left[0], error)

    def _refuse(self, ticket: Ticket, error: Exception) -> None:
        """Tell the caller of a unit that cannot be written alone why; or that it was written before."""
        assert ticket.unit is not None
        reason: BaseException | None = error
        if isinstance(error, ConstraintViolated | ChainBroken):
            with _Transaction(self) as connection:
                stored = merged_units.stored_tokens(connection, [ticket.unit.job_id])
            reason = merged_units.explain_conflict(ticket.unit, stored.get(ticket.unit.job_id), error)
        if reason is None:
            ticket.succeed()
        else:
            ticket.fail(reason)

    def _transaction(self, tickets: Sequence[Ticket]) -> None:
        """One transaction for all ``tickets``. On an error nothing is written and none is done, but for lost leases.

        When the connection is lost from the commit on, `_doubt` says what was in it.
        """
        merged = MergedUnits(self.owner, self.lease_ttl_ms)
        units = [ticket.unit for ticket in tickets if ticket.unit is not None]
        for unit in units:
            merged.add_created(unit)
        with _Transaction(self) as connection:
            merged.write_created(connection)
            lost = merged_units.lost_leases(connection, self.owner, units)
            for index, unit in enumerate(units):
                if index in lost:
                    tickets[index].fail(lost[index])
                else:
                    merged.add(unit)
            merged.write(connection)
            written = [ticket for ticket in tickets if not ticket.done]
            self._doubt = _Doubt(merged.tokens(), written)
        self._doubt = self.problem = None
        for ticket in written:
            ticket.succeed()
        self.groups += 1
        self.units += len(written)

    def connected(self) -> Connection:
        if self._connection is None:
            # A new connection would make the files that are missing, and not read those that are open.
            self.files.check()
            self._connection = self.engine.connect()
        return self._connection

    def drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            connection.invalidate()
            connection.close()
        except SQLAlchemyError:
            log.debug("A lost connection could not be closed.", exc_info=True)


class _Transaction:
    """A transaction on the writer's connection: commits, or rolls back and raises a `StoreError`."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._connection: Connection | None = None

    def __enter__(self) -> Connection:
        try:
            self._connection = connection = self._writer.connected()
            connection.begin()
            return connection
        except SQLAlchemyError as error:
            self._writer.drop_connection()
            raise translate(error, self._writer.database) from error

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        connection = self._connection
        assert connection is not None
        if error is None:
            try:
                self._writer.files.check()
                connection.commit()
            except (SQLAlchemyError, StoreUnavailable) as failed:
                error = failed
            else:
                if self._writer.files.missing and not self._writer.files.save(again=True):
                    raise ConnectionLost("A file of the database was removed during a commit.")
                return
        try:
            connection.rollback()
        except SQLAlchemyError:
            self._writer.drop_connection()
        if isinstance(error, SQLAlchemyError):
            raise translate(error, self._writer.database) from error
        if isinstance(error, StoreUnavailable):
            if self._writer.files.save():
                self._writer.files.check()
            raise error


def _publish(tickets: Sequence[Ticket]) -> None:
    """Wake the callers: once per event loop, not once per caller."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Ticket]] = {}
    for ticket in tickets:
        if ticket.loop is not None:
            by_loop.setdefault(ticket.loop, []).append(ticket)
    for loop, ready in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, ready)
        except RuntimeError:
            log.warning("Callers of the store went away with their event loop before they were answered.")


def _resolve(tickets: Sequence[Ticket]) -> None:
    for ticket in tickets:
        future = ticket.future
        if future is None or future.done():
            continue
        if ticket.error is not None:
            future.set_exception(ticket.error)
        else:
            future.set_result(ticket.result)

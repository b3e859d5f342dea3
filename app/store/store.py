"""The store: the durable data of jobs, and the owners of jobs."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import Engine
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from app.store import leases, queries, retention, schema, statements
from app.store.engine import Database, create, parse_url, translate
from app.store.errors import StoreError, StoreUnavailable
from app.store.events import load_events, prune_old_events
from app.store.leases import Lease
from app.store.queries import StoredJob
from app.store.writer import Writer
from app.store.writes import AddEvents, UnitOfWork

P = ParamSpec("P")
T = TypeVar("T")
Async = Coroutine[Any, Any, T]

READERS = 4
COMMIT_DEADLINE_S = 10.0
LEASE_TTL_MS = 15_000

PROBE_EVERY_S = 3.0
_PROBE_WAIT_S = 1.0


def _method(
    function: Callable[Concatenate[Connection, P], T], *, writes: bool = False
) -> Callable[Concatenate[Store, P], Async[T]]:
    """A method of `Store`: ``function`` in a transaction that reads, or in one of the writer."""

    @functools.wraps(function)
    async def method(store: Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await (store.write if writes else store.read)(function, *args, **kwargs)

    return method


class Store:
    """One control plane's access to its database: one writer, a few readers.

    Every method may raise `StoreUnavailable`. Reads see what is committed at the moment they begin, and never wait
    for the writer. A store belongs to one ``owner``; nothing is written for a job whose lease he does not hold.
    """

    def __init__(
        self, database: Database, owner: str, writer: Writer, readers: Engine, inline: bool, home: str = ""
    ) -> None:
        self.database = database
        self.owner = owner
        self.home = home
        self._writer = writer
        self._readers = readers
        self._probe: asyncio.Task[None] | None = None
        self._probe_at = 0.0
        self.tell_events: Callable[[], None] = lambda: None
        """Called when `commit` has committed events, so that the readers for followers can read them."""
        self.tell_commit: Callable[[UnitOfWork, float], object] = lambda _unit, _seconds: None
        """Called with what `commit` has made durable, and how long that took."""
        self.tell_failure: Callable[[StoreError], object] = lambda _error: None
        """Called with why `commit` could not."""
        self._pool = None if inline else ThreadPoolExecutor(READERS, "slotwise-store-reader")

    @classmethod
    async def open(
        cls,
        url: str,
        owner: str,
        *,
        home: str = "",
        migrate: bool = True,
        durable: bool = True,
        inline: bool = False,
        lease_ttl_ms: int = LEASE_TTL_MS,
        commit_deadline_s: float = COMMIT_DEADLINE_S,
    ) -> Store:
        """Connect to ``url`` as ``owner``, a name that no other process and no earlier run has.

        ``home`` names the place of the files of this owner's jobs (see `app.store.leases`); empty: none.

        ``migrate`` false: the schema must be up to date already. ``durable`` false gives up on power loss, and
        ``inline`` does all work in the calling thread: both are for tests and simulations.

        On SQLite the caller must have claimed the data directory (`DataDirectory`): leases of other owners of the
        same home are taken to be left over, whatever their expiry says.

        Raises:
            StoreError: the URL names no database that is supported.
            SchemaError: the database was made by a newer version, or is out of date and ``migrate`` is false.
        """
        database = parse_url(url)
        owner = leases.full_name(owner, home)
        engines: list[Engine] = []

        def connect() -> Store:
            if migrate:
                schema.upgrade(url)
            engines.append(create(database, write=True, pool_size=1, durable=durable))
            if not migrate:
                schema.check(engines[0], database)
            engines.append(create(database, write=False, pool_size=READERS, durable=durable))
            writer = Writer(engines[0], database, owner, lease_ttl_ms, commit_deadline_s, inline)
            # The first connection of a writer puts SQLite into WAL mode, which readers rely upon.
            writer.open()
            return cls(database, owner, writer, engines[1], inline, home)

        try:
            store = connect() if inline else await asyncio.to_thread(connect)
        except BaseException:
            for engine in engines:
                engine.dispose()
            raise
        store._writer.start()
        return store

    @property
    def transactions(self) -> int:
        """How many have written units of `commit`."""
        return self._writer.groups

    async def close(self) -> None:
        """Finish what is queued, then let go of the database. Later calls are refused."""
        if self._pool is None:
            self._close()
        else:
            await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._writer.close()
        if self._pool is not None:
            self._pool.shutdown()
        self._writer.engine.dispose()
        self._readers.dispose()

    # Writes

    async def commit(self, unit: UnitOfWork) -> None:
        """Write ``unit``; it is durable when this returns. Units of one job are written in the order of the calls.

        Units that wait at the same time share a transaction, and each hears of its own fate only. A caller that stops
        waiting does not take his unit back.

        Raises:
            LeaseLost: this owner does not hold the job's lease at the unit's epoch.
            StateConflict: the unit's state does not follow the stored one.
            JobExists: the job to create is there already.
            ConstraintViolated: a row breaks a rule of the schema.
            StoreUnavailable: nothing was written, save for an `OutcomeUnknown`: see there.
        """
        began_s = time.perf_counter()
        try:
            await self._writer.submit(unit=unit)
        except StoreError as error:
            self.tell_failure(error)
            raise
        self.tell_commit(unit, time.perf_counter() - began_s)
        if any(isinstance(write, AddEvents) for write in unit.writes):
            self.tell_events()

    forget = _method(retention.forget, writes=True)
    prune = _method(retention.prune, writes=True)
    prune_idempotency_keys = _method(retention.prune_idempotency_keys, writes=True)
    prune_versions = _method(retention.prune_versions, writes=True)
    prune_attempts = _method(retention.prune_attempts, writes=True)
    prune_events = _method(prune_old_events, writes=True)
    advance_age_clock = _method(retention.advance_age_clock, writes=True)

    # Ownership

    async def acquire_lease(self, job_id: str) -> Lease:
        """Take a job over at the next epoch.

        Raises:
            LeaseHeld: another owner has it, and it has not expired.
            StoreError: there is no such job.
        """
        return await self.write(leases.acquire, job_id, self.owner, self.lease_ttl_ms, at_once=self._sole)

    async def claim_leases(self, limit: int = 100, *, passing_over: Sequence[str] = ()) -> list[Lease]:
        """Take over up to ``limit`` jobs that have not ended and that no other owner holds, each at its next epoch, but
        none of ``passing_over``."""
        owner, ttl_ms, home = self.owner, self.lease_ttl_ms, self.home
        return await self.write(
            leases.claim, owner, ttl_ms, limit, at_once=self._sole, home=home, passing_over=passing_over
        )

    async def renew_leases(self) -> dict[str, Lease]:
        """Put off the expiry of all leases of this owner, and return them by job. A job that is missing was lost.

        Count the time to live from before the call, by a clock that does not jump: the database's is not yours.
        """
        held = await self.write(leases.renew, self.owner, self._writer.lease_ttl_ms)
        return {lease.job_id: lease for lease in held}

    async def expire_leases(self) -> int:
        """Let go of all jobs of this owner at the end: the next owner may take them at once. Returns their number."""
        return await self.write(leases.expire, self.owner)

    async def release_lease(self, job_id: str, epoch: int) -> bool:
        """Give a job up, so that any owner of this home may take it at once. False: it was lost already."""
        return await self.write(leases.release, job_id, self.owner, epoch, home=self.home)

    @property
    def lease_ttl_ms(self) -> int:
        """For how long a lease holds from its last renewal on."""
        return self._writer.lease_ttl_ms

    @property
    def _sole(self) -> bool:
        return self.database.dialect == "sqlite"

    # Reads

    async def load_live_jobs(self) -> list[StoredJob]:
        """Every job that has not ended, oldest first, with all that is needed to go on with it."""
        return await self.read(queries.load_jobs, None)

    async def load_jobs(self, job_ids: Sequence[str]) -> list[StoredJob]:
        """The named jobs, ended or not, oldest first; those that are not stored are left out."""
        return await self.read(queries.load_jobs, list(job_ids))

    async def load_job(self, job_id: str) -> StoredJob | None:
        found = await self.load_jobs([job_id])
        return found[0] if found else None

    job_ids = _method(queries.job_ids)
    list_jobs = _method(queries.list_jobs)
    attempts = _method(queries.load_attempts)
    scaling_policies = _method(queries.load_scaling_policies)
    answer = _method(queries.load_answer)
    submission = _method(queries.load_submission)
    artifacts = _method(queries.load_artifacts)
    artifact_digests = _method(queries.load_artifact_digests)
    rescales = _method(queries.load_rescales)
    rescale = _method(queries.load_rescale)
    rescale_durations = _method(queries.rescale_durations)
    events = _method(load_events)
    prunable = _method(retention.prunable)
    oldest_idempotency_key_ms = _method(retention.oldest_idempotency_key_ms)
    dead_attempts = _method(retention.dead_attempts)
    age_clock = _method(retention.read_age_clock)

    async def ping(self) -> None:
        """Whether the database can be read: raises `StoreUnavailable` if not."""
        await self.read(lambda connection: connection.exec_driver_sql("SELECT 1").scalar_one())

    async def check_writes(self) -> None:
        """Whether the last write succeeded: raises `StoreUnavailable` if not.

        After a failure a small write is tried, every few seconds at most, so that no job needs to be there to end it.
        Its outcome is waited for a moment only.
        """
        if self._writer.problem is None and self._writer.files.missing is None:
            return
        now = time.monotonic()
        if (self._probe is None or self._probe.done()) and now >= self._probe_at:
            self._probe_at = now + PROBE_EVERY_S
            self._probe = asyncio.get_running_loop().create_task(self._try_write())
        if self._probe is not None:
            await asyncio.wait({self._probe}, timeout=_PROBE_WAIT_S)
        problem = self._writer.problem
        if problem is not None:
            raise StoreUnavailable(str(problem))

    async def _try_write(self) -> None:
        with contextlib.suppress(StoreError):
            await self.write(statements.write_and_take_back)
            self._writer.problem = None

    async def write(
        self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run ``function`` in a transaction of the writer, in its turn."""
        result: T = await self._writer.submit(call=lambda connection: function(connection, *args, **kwargs))
        return result

    async def read(
        self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run ``function`` in a transaction that reads."""

        def found() -> T:
            try:
                with self._readers.connect() as connection:
                    return function(connection, *args, **kwargs)
            except SQLAlchemyError as error:
                raise translate(error, self.database) from error

        if self._pool is None:
            return found()
        try:
            reading = asyncio.get_running_loop().run_in_executor(self._pool, found)
        except RuntimeError as error:
            raise StoreUnavailable("The store is closed.") from error
        return await reading


class _OfStore(Protocol):
    @property
    def store(self) -> Store: ...


S = TypeVar("S", bound=_OfStore)


def read_transaction(
    method: Callable[Concatenate[S, Connection, P], T],
) -> Callable[Concatenate[S, P], Async[T]]:
    """``method``, called with the connection of a transaction of ``self.store`` that reads."""

    @functools.wraps(method)
    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.store.read(lambda connection: method(self, connection, *args, **kwargs))

    return call


def write_transaction(
    method: Callable[Concatenate[S, Connection, P], T],
) -> Callable[Concatenate[S, P], Async[T]]:
    """``method``, called with the connection of a transaction of ``self.store`` that writes."""

    @functools.wraps(method)
    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.store.write(lambda connection: method(self, connection, *args, **kwargs))

    return call

"""The membership of a server in the group that shares a data directory and a PostgreSQL database: join and
leave.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from pathlib import Path

import structlog

from app.store.leases import full_name
from app.store.members import Member, Members, task_manager_of
from app.store.seats import Seat, is_dead, this_place
from app.store.store import Store
from app.worker.slots.doorbell import Bells, Doorbells, NoBells

log = structlog.get_logger()

_RETRY_S = 1.0


class PlaceTaken(Exception):
    """Servers of another host use the data directory; the message is a sentence for people."""


class Membership:
    """``seat`` None: no other server can share the data directory (SQLite)."""

    def __init__(
        self,
        data_dir: Path,
        home: str,
        seat: Seat | None,
        *,
        url: str,
        version: str,
        slots: int,
        cluster: str = "",
    ) -> None:
        self.data_dir = data_dir
        self.home = home
        self.owner = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._seat = seat
        self._place = this_place()
        self._member: Member | None = None
        if seat is not None:
            self._member = Member(
                member_id=full_name(self.owner, home),
                home=home,
                seat=seat.number,
                url=url,
                host=socket.gethostname(),
                place=self._place,
                pid=os.getpid(),
                version=version,
                slots=slots,
                cluster=cluster,
            )

    @property
    def is_shared(self) -> bool:
        return self._seat is not None

    @property
    def run_dir(self) -> Path:
        """Where the drivers of this server have their locks and logs."""
        return self._seat.run_dir if self._seat is not None else self.data_dir / "run"

    @property
    def task_manager(self) -> str:
        return task_manager_of(self._seat.number if self._seat is not None else 1)

    def bells(self) -> Bells:
        """How this server and the others tell each other of something to look at."""
        return NoBells() if self._seat is None else Doorbells(self.data_dir, self._seat.number)

    async def join(self, store: Store) -> Member | None:
        """This server as a member; None if it is alone.

        Members of another host, or of another container, may be dead: they have until their leases expire to prove it.

        Raises:
            PlaceTaken: they live.
            StoreError: the database is away.
        """
        if self._seat is None or self._member is None:
            return None
        self._seat.name(self._member.member_id)
        members, loop = Members(store), asyncio.get_running_loop()
        until_s = loop.time() + store.lease_ttl_ms / 1000 + _RETRY_S
        while hosts := await members.join(self._member):
            if loop.time() > until_s:
                raise PlaceTaken(
                    f"The data directory {self.data_dir} is in use by a server of another host or container "
                    f"({', '.join(hosts)}). Servers that share one have to see each other's processes: start this one "
                    "there, or stop those."
                )
            log.warning("waiting for servers of another host to be gone", hosts=hosts)
            await asyncio.sleep(_RETRY_S)
        return self._member

    async def leave(self, store: Store) -> None:
        if self._member is not None:
            await Members(store).leave(self._member)

    def is_dead(self, member: Member) -> bool:
        """Whether the process of ``member`` has certainly ended."""
        return is_dead(self.data_dir, member, self._place)

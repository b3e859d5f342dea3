"""The HTTP server: uvicorn with connections that are bounded (`app.api.connections`)."""

from __future__ import annotations

import asyncio
import functools
import resource
import signal
import socket
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Final

import uvicorn

from app.api.connections import IDLE_S, Connection, Crowd
from app.api.mark import API_VERSION, MARK

CONNECTIONS_MAX: Final = 10_000
_DESCRIPTORS_MAX = 65_536
_SHUTDOWN_GRACE_S = 5
_TICKS_PER_LOOK = 10


class Server(uvicorn.Server):
    """Serves ``app`` on sockets that it is given. ``let_go`` lets go of waiting drivers before it waits for others."""

    def __init__(
        self, app: object, *, connections_max: int, let_go: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self.crowd = Crowd(connections_max)
        super().__init__(
            uvicorn.Config(
                app,  # type: ignore[arg-type]
                http=functools.partial(Connection, self.crowd),  # type: ignore[arg-type]
                ws="none",
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                headers=[(MARK, API_VERSION)],
                # Nobody stands in front; whoever says so in a header is not to be believed.
                proxy_headers=False,
                timeout_graceful_shutdown=_SHUTDOWN_GRACE_S,
                timeout_keep_alive=int(IDLE_S),
            )
        )
        self._let_go = let_go

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        # Uvicorn raises what it was sent again when it has ended. SIGTERM would end the process there and then, before
        # the store and the host are closed.
        self._captured_signals = [each for each in self._captured_signals if each != signal.SIGTERM]

    async def on_tick(self, counter: int) -> bool:
        if counter % _TICKS_PER_LOOK == 0:
            self.crowd.look(asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._let_go is not None:
            await self._let_go()
        await super().shutdown(sockets)


def raise_descriptor_limit() -> int:
    """Let this process have as many descriptors as it may, and return how many connections of clients are safe.

    The other half is for drivers (a process needs three), files and the database.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    descriptors = _DESCRIPTORS_MAX if soft == resource.RLIM_INFINITY else soft
    return min(descriptors // 2, CONNECTIONS_MAX)

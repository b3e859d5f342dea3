"""The HTTP server: its socket, and uvicorn with connections that are bounded (`app.api.connections`)."""

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
_BACKLOG: Final = 2048
_DESCRIPTORS_MAX = 65_536
_SHUTDOWN_GRACE_S = 5
_TICKS_PER_LOOK = 10


class PortRefused(Exception):
    """The server cannot listen there; the message is a sentence for people."""


def bind(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet, so that no client connects before the server is ready.

    Raises:
        PortRefused: it cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise _refused(host, port, error) from error
    return listener


def listen(listener: socket.socket) -> None:
    """
    Raises:
        PortRefused: another program listens there.
    """
    try:
        listener.listen(_BACKLOG)
    except OSError as error:
        # Two servers may have bound the same port before either of them listened.
        host, port = listener.getsockname()[:2]
        raise _refused(host, port, error) from error


def _refused(host: str, port: int, error: OSError) -> PortRefused:
    return PortRefused(
        f"Cannot listen on {host}, port {port}: {error.strerror}. "
        "Is another server running there? Choose another port with --port (0 takes a free one)."
    )


def url_of(listener: socket.socket) -> str:
    """Where a client on this host finds it."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104 - looked for, not bound
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


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
                # No proxy is trusted: headers of proxies are ignored.
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

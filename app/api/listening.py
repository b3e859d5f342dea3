"""The socket that the server listens on."""

from __future__ import annotations

import socket
from typing import Final

_BACKLOG: Final = 2048


class PortRefused(Exception):
    """The server cannot listen there; the message is a sentence for people."""


def bind(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet, so that nobody is let in before the server is ready.

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
        PortRefused: somebody else listens there.
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

"""Whether a web page belongs to the configured master, by the master's address on the page.

A host has several names and addresses, and the one by which executors and drivers call a master may be none that the
master knows of itself: in a container, behind a service of Kubernetes. So only one thing is certain: two ports of one
host are two masters. Whatever else differs proves nothing, and to be blind to a cluster that is there is worse than to
believe a page that is not its own.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence
from enum import Enum

from app.model.addresses import SPARK_PREFIX, is_loopback, spark_masters

Master = tuple[str, int]
"""Host and port."""

# Of the block for documentation: nobody has it.
_NOBODYS = "192.0.2.1"


class Match(Enum):
    """SAME: the page is that of a master that is called. OTHER: it is certainly not. UNKNOWN: neither can be told."""

    SAME = "same"
    OTHER = "other"
    UNKNOWN = "unknown"


def addresses_of(host: str) -> frozenset[str]:
    """The addresses that ``host`` has when it is asked from here; none if that is not known."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return frozenset()
    return frozenset(str(address[0]) for *_, address in found)


def is_local(address: str) -> bool:
    """Whether this machine has the address. Some machines let anything be listened at: there, nothing is known."""
    if is_loopback(address):
        return True
    return can_listen(address) and not can_listen(_NOBODYS)


def match(
    masters: Sequence[Master],
    url: str,
    *,
    addresses: Callable[[str], frozenset[str]] = addresses_of,
    local: Callable[[str], bool] = is_local,
) -> Match:
    """Whether the page of a master that calls itself ``url`` is that of one of ``masters``. Names are looked up, which
    may take long, if they do not tell by themselves."""
    said = _master(url)
    if said is None:
        return Match.UNKNOWN
    host, port = said
    if any((_plain(name), number) == (_plain(host), port) for name, number in masters):
        return Match.SAME
    if _is_anywhere(host):
        return Match.UNKNOWN
    same_host = [one for one in masters if _is_same_host(one[0], host, addresses, local)]
    if any(number == port for _, number in same_host):
        return Match.SAME
    if same_host and all(number != port for _, number in masters):
        return Match.OTHER
    return Match.UNKNOWN


def _master(url: str) -> Master | None:
    if not url.startswith(SPARK_PREFIX):
        return None
    try:
        (found,) = spark_masters(url)
    except ValueError:
        return None
    return found


def _is_same_host(
    one: str, other: str, addresses: Callable[[str], frozenset[str]], local: Callable[[str], bool]
) -> bool:
    if _plain(one) == _plain(other):
        return True
    first, second = addresses(one), addresses(other)
    if first & second:
        return True
    # A host's own name is often another loopback address than localhost is.
    return any(map(local, first)) and any(map(local, second))


def _plain(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.lower().rstrip(".")


def _is_anywhere(host: str) -> bool:
    """Whether the master says only that it can be called at every address of its host."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def can_listen(address: str) -> bool:
    """Whether a process of this host can listen at ``address``."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
            return True
    except OSError:
        return False


def of_another(url: str, masters: str) -> str:
    """What is wrong with the page of a master that calls itself ``url``, to follow the page's address."""
    return f"it is the page of the master {url}, which is none of cluster_master ({masters})"

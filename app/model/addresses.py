"""Parsing of addresses in settings: Spark masters, their web pages, this host."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

SPARK_PREFIX: Final = "spark://"

_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]"
_MASTER = re.compile(rf"({_HOST}):(\d{{1,5}})")
_PAGE = re.compile(rf"https?://(?:{_HOST})(?::(\d{{1,5}}))?(?:/[A-Za-z0-9/._~-]*)?")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
LAST_PORT = 65535


def spark_masters(url: str) -> tuple[tuple[str, int], ...]:
    """Host and port of each master that ``spark://host:port,host:port`` names.

    Raises:
        ValueError: it is not such a URL, to follow the name of the field.
    """
    masters = []
    for entry in url.removeprefix(SPARK_PREFIX).split(","):
        found = _MASTER.fullmatch(entry)
        if not url.startswith(SPARK_PREFIX) or found is None or not _is_port(found[2]):
            raise ValueError(
                f"should be spark://host:port, or spark://host:port,host:port of several masters, without blanks and "
                f"with ports from 1 to {LAST_PORT} ({_shown(url)})."
            )
        masters.append((found[1].strip("[]"), int(found[2])))
    return tuple(masters)


def web_pages(text: str) -> tuple[str, ...]:
    """The pages that ``http://host:port,http://host:port`` names, each without a slash at its end.

    Raises:
        ValueError: it is not such a list, to follow the name of the field.
    """
    pages = []
    for entry in text.split(","):
        found = _PAGE.fullmatch(entry)
        if found is None or (found[1] is not None and not _is_port(found[1])):
            raise ValueError(
                f"should be http://host:port, or several of them with commas, without blanks and with ports from 1 to "
                f"{LAST_PORT} ({_shown(text)})."
            )
        pages.append(entry.rstrip("/"))
    return tuple(pages)


def is_host(text: str) -> bool:
    """Whether ``text`` is a host's name or its address, one that others could call: not a URL, not 0.0.0.0."""
    try:
        return not ipaddress.ip_address(text).is_unspecified
    except ValueError:
        return _NAME.fullmatch(text) is not None and not re.fullmatch(r"[\d.]+", text)


def is_loopback(host: str) -> bool:
    """Whether ``host`` can only be reached from the machine that it is."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_port(digits: str) -> bool:
    return 1 <= int(digits) <= LAST_PORT


def _shown(text: str) -> str:
    # What stands before an @ may be a password.
    return "what it says is not shown, as it may have a password" if "@" in text else f"found {text!r}"

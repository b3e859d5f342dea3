"""Ids: 32 lower-case hexadecimal digits, no dashes, for everything that has an id in the REST contract.

Ids are derived, not drawn: the same names always give the same id, so that a re-submitted graph keeps its vertex
ids (external autoscalers hold on to them) and so that the pure core needs no source of randomness.
"""

from __future__ import annotations

import hashlib
import re

_HEX_32 = re.compile(r"[0-9a-f]{32}\Z")


class InvalidId(ValueError):
    """A text that should be 32 hexadecimal digits is not."""


def derive_id(*parts: str | int) -> str:
    """The id of what ``parts`` name, outermost first. Equal parts give equal ids; any difference gives another id."""
    text = "\x1f".join(map(str, parts))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def vertex_id(job_name: str, vertex_name: str) -> str:
    """The id of a vertex: stable across submissions of a graph of the same name."""
    return derive_id("vertex", job_name, vertex_name)


def slot_sharing_group_id(job_name: str, group_name: str) -> str:
    """The id of a slot sharing group: stable across submissions of a graph of the same name."""
    return derive_id("slot-sharing-group", job_name, group_name)


def is_id(text: str) -> bool:
    """Whether ``text`` is an id as they are written here."""
    return _HEX_32.match(text) is not None


def normalize_id(text: str) -> str:
    """``text`` as a lower-case id.

    Raises:
        InvalidId: it is not 32 hexadecimal digits.
    """
    lowered = text.lower()
    if not _HEX_32.match(lowered):
        raise InvalidId(f"{text[:80]!r} is not an id: 32 hexadecimal digits are expected")
    return lowered

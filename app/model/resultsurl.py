"""The setting `results_url`: a local folder, or a directory of a Hadoop file system, for results of BATCH jobs."""

from __future__ import annotations

import posixpath
import re
from typing import Final

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_NOT_WRITABLE: Final = frozenset({"http", "https", "jar", "data"})
_ALLOWED: Final = (
    "allowed are the URI of a directory of a Hadoop file system, as hdfs://host/path or s3a://bucket/path, and an "
    "absolute path on this host"
)


def results_root(text: str) -> str:
    """``text`` without a slash at its end: an absolute path if it means a local folder, else a URI.

    As in Hadoop itself nothing in it is percent-encoded.

    Raises:
        ValueError: it is neither; the message is to follow the name of the field.
    """
    if text != text.strip() or not text.isprintable():
        raise ValueError(f"{text!r} begins or ends with a blank or has a character that is not printable.")
    match = _SCHEME.fullmatch(text)
    if match is None or match[1].lower() == "file":
        return _local(text, match[2] if match else text)
    scheme, rest = match[1].lower(), match[2]
    authority, slash, path = rest.removeprefix("//").partition("/")
    if not rest.startswith("//") or scheme in _NOT_WRITABLE or not (authority or slash):
        raise ValueError(f"{text!r} is not a place for results: {_ALLOWED}.")
    if ":" in authority.rpartition("@")[0]:
        raise ValueError(
            "it has a password, which would be stored and shown: set it in the configuration of Hadoop."
        )
    _check_parts(text, path)
    return f"{scheme}://{authority}/{path.rstrip('/')}"


def _local(text: str, path: str) -> str:
    """The forms of Hadoop are file:/path and file:///path."""
    path = path.removeprefix("//") if path.startswith("///") else path
    if not path.startswith("/") or path.startswith("//"):
        raise ValueError(f"{text!r} is not a place for results: {_ALLOWED}.")
    if not path.strip("/"):
        raise ValueError(f"{text!r} is the root of this host's files: name a folder.")
    _check_parts(text, path)
    return posixpath.normpath(path)


def _check_parts(text: str, path: str) -> None:
    if {".", ".."} & set(path.split("/")):
        raise ValueError(f"{text!r} has the part . or .. in its path: write the path without it.")


def is_local(place: str) -> bool:
    """Whether a result at ``place``, below a `results_root`, is a file of this host."""
    return place.startswith("/")


def below(root: str, *parts: str) -> str:
    """The place ``parts`` below ``root``."""
    return "/".join((root.rstrip("/"), *parts))

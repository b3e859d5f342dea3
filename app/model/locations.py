"""The place that a text names which is given to Spark, where no Spark can be asked.

Drivers ask Hadoop itself (`app.driver.directories`); that both agree, a test sees for every spelling.
"""

from __future__ import annotations

import re
from posixpath import normpath
from typing import Final

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_DRIVE: Final = re.compile("[A-Za-z]:")


def plain_location(location: str) -> str | None:
    """``location`` in one of the several ways in which it can be written: as the absolute path if it is a place of this
    host, and else as a URI. None if it is relative, or nothing that Hadoop takes.

    As in Hadoop's Path no character has a meaning but slash and dot, so nothing is decoded, and ``..`` goes by the text
    and not by links. The exception is what begins as a drive of Windows does, on every system.
    """
    found = _SCHEME.fullmatch(location)
    scheme, path = (found[1].lower(), found[2]) if found else ("file", location)
    if found and scheme == "file" and _DRIVE.match(path):
        path = "/" + path.replace("\\", "/")
    authority = ""
    if path.startswith("//") and path != "//":
        authority, slash, rest = path[2:].partition("/")
        path = slash + rest or "/"
    if not path.startswith("/") or (authority and scheme == "file"):
        return None
    path = normpath(re.sub("/+", "/", path))
    return path if scheme == "file" else f"{scheme}://{authority}{path}"

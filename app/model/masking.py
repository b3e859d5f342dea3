"""What of a job and a server is shown to whoever may read, and what is hidden: passwords, keys and tokens.

Rather too much than too little: what is hidden is in the file that it was written in.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any, Final

from app.model.javaoptions import EXECUTOR_OPTION_SETTINGS, JAVA_OPTION_SETTINGS

HIDDEN: Final = "******"

_WORDS = (
    r"secret|passw(?:or)?d|passphrase|(?<![a-z])pwd|token|credential|jaas|connection[._-]?string|shared[._-]?access"
    r"|(?:api|access|account|private|encryption|master|shared|session|signing|storage)[._-]?key"
    r"|(?<![a-z])sas(?![a-z])|(?<![a-z])authorization|(?<![a-z])(?:db|my|pg)?pass(?![a-z])|keystore[._-]?key"
)
_SECRET = re.compile(_WORDS, re.IGNORECASE)
# scheme://user:password@host, up to the last @ of the word: a password may have one.
_IN_URL = re.compile(r"([A-Za-z][\w+.-]*://[^\s/?#:@]*):\S*@")
# name=value, in the query of a URL or between semicolons. The name is the word before the sign. SQL Server has values
# in braces, where two closing ones stand for one.
_PAIR = re.compile(r"([\w.%-]+)(\s*=\s*)(\"[^\"]*\"|'[^']*'|\{(?:[^}\n]|\}\})*\}|[^\s&;]*)")
_JAVA_OPTIONS = frozenset({*JAVA_OPTION_SETTINGS, *EXECUTOR_OPTION_SETTINGS})


def is_secret(name: str) -> bool:
    """Whether what goes by this name is to be hidden."""
    return _SECRET.search(name) is not None


def masked(name: str, value: str) -> str:
    """``value`` of a setting, as far as it may be shown."""
    if is_secret(name):
        return HIDDEN
    return masked_java_options(value) if name in _JAVA_OPTIONS else masked_text(value)


def masked_text(text: str) -> str:
    """``text`` without passwords in URLs, and without values whose names speak of secrets."""
    found = _IN_URL.sub(rf"\1:{HIDDEN}@", text)
    return _PAIR.sub(_hide, found)


def masked_java_options(text: str) -> str:
    """Options of a JVM without values whose names speak of secrets."""
    try:
        options = shlex.split(text)
    except ValueError:
        return HIDDEN
    shown = [_masked_option(option) for option in options]
    if shown == options:
        return text
    return " ".join(each if HIDDEN in each else shlex.quote(each) for each in shown)


def masked_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """A job graph document with what is secret in its config and in its sources and sinks hidden."""
    return {
        **document,
        "config": {name: masked(name, value) for name, value in document.get("config", {}).items()},
        "vertices": [_masked_vertex(vertex) for vertex in document.get("vertices", ())],
    }


def _masked_vertex(vertex: Mapping[str, Any]) -> dict[str, Any]:
    shown = dict(vertex)
    for end in ("source", "sink"):
        if spec := vertex.get(end):
            options = {name: masked(name, value) for name, value in spec.get("options", {}).items()}
            path = {"path": masked_text(spec["path"])} if "path" in spec else {}
            shown[end] = {**spec, **path, "options": options}
    return shown


def _masked_option(option: str) -> str:
    """The whole rest behind a name that speaks of secrets: an option may have any sign in its value."""
    name, sign, _ = option.partition("=")
    if sign and is_secret(name):
        return f"{name}={HIDDEN}"
    return masked_text(option)


def _hide(pair: re.Match[str]) -> str:
    name, sign, _value = pair.groups()
    return f"{name}{sign}{HIDDEN}" if is_secret(name) else pair[0]

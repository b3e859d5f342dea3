"""Masking of passwords, keys and tokens in settings, arguments and documents that the API shows.

Logs and failures are the matter of `app.model.secret_texts`.

In doubt a value is masked, because its author can still read it in the original file.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from app.model.javaoptions import ALL_JAVA_OPTION_SETTINGS
from app.model.jobgraph import MAX_SETTING_CHARS
from app.model.secret_places import HIDDEN, SETTING, hide_all, is_secret, named_arguments


def masked(name: str, value: str) -> str:
    """``value`` of a setting, as far as it may be shown."""
    if is_secret(name) or len(value) > MAX_SETTING_CHARS:
        return HIDDEN
    return masked_java_options(value) if name in ALL_JAVA_OPTION_SETTINGS else masked_text(value)


def masked_text(text: str) -> str:
    """``text`` without passwords in URLs, tokens, and values whose names speak of secrets."""
    return hide_all(text, SETTING)


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


def masked_arguments(args: Iterable[str]) -> list[str]:
    """Arguments of a program, without the values of options whose names speak of secrets."""
    return [HIDDEN if name else _masked_option(arg) for name, arg in named_arguments(args)]


def masked_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """A job graph document with what is secret in its config, its args, its sources and its sinks hidden."""
    args = {"args": masked_arguments(document["args"])} if "args" in document else {}
    return {
        **document,
        **args,
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

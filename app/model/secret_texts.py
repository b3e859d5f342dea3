"""What is secret in texts that nobody wrote for us: errors and stack traces of drivers, which name URLs, options and
the very values that a job was given.

Two ways: values that the job graph has under names that speak of secrets, wherever they stand, and what looks like a
secret by what stands before it. A trace is there to be read, so less is taken for a secret than in a setting
(`app.model.masking`): not the port of a URL, not a class, not a word that happens to be somebody's password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from app.model.javaoptions import EXECUTOR_OPTION_SETTINGS, JAVA_OPTION_SETTINGS, split_java_options
from app.model.jobgraph import JobGraph, SinkSpec, SourceSpec
from app.model.masking import HIDDEN, is_secret

_LEAST_CHARS: Final = 4
_LEAST_OF_A_WORD: Final = 6
_UNLIKELY_CHARS: Final = 8
_LONG_CHARS: Final = 16
_CUT: Final = "..."
_JAVA_OPTIONS: Final = frozenset({*JAVA_OPTION_SETTINGS, *EXECUTOR_OPTION_SETTINGS})

# A setting whose name speaks of secrets may say how to get one, whether, or for how long.
_NO_SECRET: Final = re.compile(r"true|false|none|null|\d{1,7}|[\d.]+\s*(?:ms|s|m|min|h|d)", re.IGNORECASE)
_PASSWORD: Final = re.compile(r"pass|pwd|secret", re.IGNORECASE)
_CLASS: Final = re.compile(r"(?:[a-z_][\w$]*\.)+[A-Z][\w$]*(?:,\s*(?:[a-z_][\w$]*\.)+[A-Z][\w$]*)*")
_WORD: Final = re.compile(r"[A-Za-z]+|\d+")

# scheme://user:password@host, up to the last @ of the word. A port is no password.
_IN_URL: Final = re.compile(
    r"((?<![\w+.-])[A-Za-z][\w+.-]*+://[^\s/?#:@'\"]*):(?!\d{1,5}(?:[/?#,;)\]'\"\s]|$))[^\s'\"]{0,512}@"
)
# jdbc:oracle:thin:user/password@host
_ORACLE: Final = re.compile(r"(jdbc:oracle:\w+:[^\s/@]{0,128})/[^\s'\"]{0,256}?@", re.IGNORECASE)
# name=value, not name==value. The name is the word before the sign.
_PAIR: Final = re.compile(
    r"((?<![\w.%-])[\w.%-]++)([ \t]*=(?!=)[ \t]*)(\"[^\"\n]*\"|'[^'\n]*'|\{(?:[^}\n]|\}\})*\}|[^\s&;]+)"
)
# What is on the right of an assignment in a line of a program.
_CODE: Final = re.compile(r"[A-Za-z_][\w.]*[(\[]")
# 'name': 'value', as a dictionary is shown, or JSON.
_ENTRY: Final = re.compile(r"(([\"'])([\w.-]+)\2\s*:\s*)(\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')")
_BEARER: Final = re.compile(
    r"(\bAuthorization[\"']?\s*[:=]\s*[\"']?(?:[A-Za-z]+\s+)?|\bBearer\s+(?=\S*\d))([A-Za-z0-9+/._~=-]{8,})",
    re.IGNORECASE,
)
_JWT: Final = re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*")
_INNER: Final = re.compile(r"([\w.-]+)\s*=\s*(\"[^\"]*\"|'[^']*'|\{(?:[^}\n]|\}\})*\}|[^\s&;,]+)")
_PASSWORD_OF_URL: Final = re.compile(r"[A-Za-z][\w+.-]*://[^\s/?#:@]*:(\S*)@")
_PERCENT: Final = re.compile(r"((?:%[0-9A-Fa-f]{2})+)")


def without_secrets(text: str, known: Sequence[str] = ()) -> str:
    """``text`` without secrets: those that are ``known``, and what looks like one."""
    for value in known:
        text = _pattern_of(value).sub(HIDDEN, text)
    text = _without_cut_secret(text, known)
    text = _IN_URL.sub(rf"\1:{HIDDEN}@", text)
    text = _ORACLE.sub(rf"\1/{HIDDEN}@", text)
    text = _ENTRY.sub(_hide_entry, text)
    text = _PAIR.sub(_hide_pair, text)
    text = _BEARER.sub(rf"\1{HIDDEN}", text)
    return _JWT.sub(HIDDEN, text)


def secrets_of(graph: JobGraph) -> tuple[str, ...]:
    """The secret values of a job, as they may be written in a URL too; the longest first, as one may be part of
    another."""
    found: set[str] = set()
    for name, value in _settings_of(graph):
        for secret in _secrets_in(name, value):
            if _is_worth_hiding(secret.strip()):
                found |= {form for form in _forms(secret.strip()) if _is_worth_hiding(form)}
    return tuple(sorted(found, key=lambda value: (-len(value), value)))


def _settings_of(graph: JobGraph) -> Iterator[tuple[str, str]]:
    yield from graph.config
    for vertex in graph.vertices:
        if isinstance(vertex.operation, SourceSpec | SinkSpec):
            yield from vertex.operation.options
            if vertex.operation.path:
                yield "path", vertex.operation.path


def _secrets_in(name: str, value: str) -> Iterator[str]:
    if is_secret(name):
        yield value
    if name in _JAVA_OPTIONS:
        try:
            options = split_java_options(value)
        except ValueError:
            options = ()
        for option in options:
            key, _, rest = option.partition("=")
            if rest and is_secret(key):
                yield rest
    for match in _PASSWORD_OF_URL.finditer(value):
        yield match[1]
    for match in _INNER.finditer(value):
        if is_secret(match[1]):
            yield match[2].strip("\"'")
            if match[2].startswith("{"):
                yield match[2][1:-1].replace("}}", "}")


def _forms(secret: str) -> set[str]:
    """As it is, as it is meant if it is written for a URL, as it would be written for one, and in quotation marks."""
    quoted = "".join(
        sign if sign.isascii() and (sign.isalnum() or sign in "-._~") else _percent(sign) for sign in secret
    )
    return {secret, _PERCENT.sub(_decoded, secret), quoted, repr(secret)[1:-1]}


def _percent(sign: str) -> str:
    return "".join(f"%{byte:02X}" for byte in sign.encode())


def _decoded(match: re.Match[str]) -> str:
    return bytes.fromhex(match[1].replace("%", "")).decode(errors="replace")


def _is_worth_hiding(value: str) -> bool:
    # Somebody's password is "password".
    if value == HIDDEN or (value.isalpha() and is_secret(value)):
        return False
    if len(value) < (_LEAST_OF_A_WORD if value.isalpha() else _LEAST_CHARS):
        return False
    return _NO_SECRET.fullmatch(value) is None and _CLASS.fullmatch(value) is None


def _pattern_of(value: str) -> re.Pattern[str]:
    """A short one may be part of names that have nothing to do with it, so it has to stand alone."""
    exact = re.escape(value)
    if _WORD.fullmatch(value) and len(value) < _LONG_CHARS:
        return re.compile(rf"(?<![\w.$/-]){exact}(?![\w$/(-])(?!\.\w)")
    return re.compile(exact if len(value) >= _UNLIKELY_CHARS else rf"(?<!\w){exact}(?!\w)")


def _without_cut_secret(text: str, known: Sequence[str]) -> str:
    """An error that was cut may end in the middle of one."""
    if not text.endswith(_CUT):
        return text
    kept = text[: -len(_CUT)]
    for value in known:
        for length in range(len(value) - 1, _LEAST_CHARS - 1, -1):
            if kept.endswith(value[:length]):
                return f"{kept[:-length]}{HIDDEN}{_CUT}"
    return text


def _hide_pair(pair: re.Match[str]) -> str:
    name, sign, value = pair.groups()
    is_code = sign != "=" and _CODE.match(value) is not None
    return pair[0] if is_code or not _is_hidden(name, value) else f"{name}{sign}{HIDDEN}"


def _hide_entry(entry: re.Match[str]) -> str:
    before, _, name, value = entry.groups()
    return f"{before}{value[0]}{HIDDEN}{value[0]}" if _is_hidden(name, value[1:-1]) else entry[0]


def _is_hidden(name: str, value: str) -> bool:
    """A number of tokens is none; a password may be a number."""
    if value.startswith(HIDDEN) or not is_secret(name):
        return False
    return _PASSWORD.search(name) is not None or not _NO_SECRET.fullmatch(value.rstrip("),"))

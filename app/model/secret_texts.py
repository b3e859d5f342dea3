"""Secrets in texts that Slotwise did not write: errors and stack traces of drivers, which contain URLs, options
and values of the job.

Two kinds of text are hidden: values that the job graph has under names that indicate a secret, at any place;
and text that looks like a secret because of the preceding text. Traces must stay readable, so less is hidden
than in a setting (`app.model.masking`): not the port of a URL, not a class, not a word that is a password by
chance.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from app.model.javaoptions import ALL_JAVA_OPTION_SETTINGS, split_java_options
from app.model.jobgraph import JobGraph, ProgramSpec, SinkSpec, SourceSpec
from app.model.masking import (
    HIDDEN,
    SETTING,
    TRACE,
    Place,
    bearers,
    entries,
    hide_all,
    is_secret,
    json_web_tokens,
    named_argument,
    named_arguments,
    pairs,
    passwords_of_oracle,
    passwords_of_urls,
    private_keys,
)

_LEAST_CHARS: Final = 4
_LEAST_OF_A_WORD: Final = 6
_UNLIKELY_CHARS: Final = 8
_LONG_CHARS: Final = 16
_CUT: Final = "..."
_LONGEST_CUT: Final = 4_096
# Beyond this, looking for them would hold everything else up.
_MOST_KNOWN: Final = 1_000
_MOST_WORK: Final = 20_000_000

# A setting whose name speaks of secrets may say how to get one, whether, or for how long.
_NO_SECRET: Final = re.compile(r"true|false|none|null|\d{1,7}|[\d.]+\s*(?:ms|s|m|min|h|d)", re.IGNORECASE)
_PASSWORD: Final = re.compile(r"pass|pwd|secret", re.IGNORECASE)
# Of user:password.
_OF_A_USER: Final = re.compile(r"user[._-]?info|auth|credential", re.IGNORECASE)
_CLASS: Final = re.compile(r"(?:[a-z_][\w$]*+\.)++[A-Z][\w$]*+(?:,\s*+(?:[a-z_][\w$]*+\.)++[A-Z][\w$]*+)*+")
_WORD: Final = re.compile(r"[A-Za-z]+|\d+")

# What is on the right of an assignment in a line of a program.
_CODE: Final = re.compile(r"[A-Za-z_][\w.]*+[(\[]")
# What stands alone: a word, or letters and digits, which one pass finds whatever their number.
_ALONE: Final = re.compile(r"(?<![\w.$/-])(?:[A-Za-z]++|\d++)(?![\w$/(-])(?!\.\w)")
_SIGNS: Final = re.compile(r"(?<!\w)\w++")
_PERCENT: Final = re.compile(r"((?:%[0-9A-Fa-f]{2})++)")
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_TOO_LONG: Final = (
    "The text is hidden: the job has so many secret values that they cannot be looked for in it."
)


def without_secrets(text: str, known: Sequence[str] = ()) -> str:
    """``text`` without secrets: those that are ``known``, and what looks like one."""
    if _are_too_many(known, len(text)):
        return _TOO_LONG
    text = _without_known(text, known)
    return hide_all(_without_cut_secret(text, known), TRACE, _is_hidden)


def part_without_secrets(before: str, text: str, after: str, known: Sequence[str] = ()) -> str:
    """``text`` without secrets, also without those that begin in what stands ``before`` it or end in what comes
    ``after``. Parts that follow each other make up what their whole is without its secrets; one with more of them than
    can be looked for is a line that says so."""
    cut = "" if after else _CUT
    if _are_too_many(known, len(before) + len(text) + len(after) + len(cut)):
        return f"{_TOO_LONG}\n"
    whole = without_secrets(before + text + after + cut, known).removesuffix(cut)
    begin = _in_common(whole, without_secrets(before, known))
    end = _in_common(whole, without_secrets(before + text, known)) if after else len(whole)
    return whole[begin : max(begin, end)]


def _are_too_many(known: Sequence[str], chars: int) -> bool:
    return len(known) > _MOST_KNOWN or len(known) * chars > _MOST_WORK


def _in_common(text: str, beginning: str) -> int:
    """How many characters both begin with."""
    if text.startswith(beginning):
        return len(beginning)
    low, high = 0, min(len(text), len(beginning))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if text.startswith(beginning[:middle]) else (low, middle - 1)
    return low


def secrets_of(graph: JobGraph) -> tuple[str, ...]:
    """The secret values of a job, as they may be written in a URL too; the longest first, as one may be part of
    another."""
    return _secret_values(_settings_of(graph))


def _secret_values(settings: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    found: set[str] = set()
    for name, value in settings:
        for secret in set(_secrets_in(name, value)):
            if _is_worth_hiding(secret.strip()):
                found |= {form for form in _forms(secret.strip()) if _is_worth_hiding(form)}
    return tuple(sorted(found, key=lambda value: (-len(value), value)))


def _settings_of(graph: JobGraph) -> Iterator[tuple[str, str]]:
    yield from graph.config
    yield from graph.runtime.variables
    if graph.program is not None:
        yield from _arguments_of(graph.program)
    for vertex in graph.vertices:
        if isinstance(vertex.operation, SourceSpec | SinkSpec):
            yield from vertex.operation.options
            if vertex.operation.path:
                yield "path", vertex.operation.path


def _arguments_of(program: ProgramSpec) -> Iterator[tuple[str, str]]:
    for name, _, value in named_arguments(program.args):
        yield name, value


def _secrets_in(name: str, value: str) -> Iterator[str]:
    if is_secret(name):
        yield value
        if _OF_A_USER.search(name):
            yield value.partition(":")[2]
    if name in ALL_JAVA_OPTION_SETTINGS:
        try:
            options = split_java_options(value)
        except ValueError:
            options = ()
        for option in options:
            key, _, rest = named_argument(option)
            if key:
                yield rest
    for places in (
        passwords_of_urls(value, SETTING),
        passwords_of_oracle(value),
        entries(value),
        bearers(value, SETTING),
        json_web_tokens(value),
        private_keys(value),
    ):
        for place in places:
            yield value[place.start : place.end].strip('"')
    for place in pairs(value, SETTING):
        yield from _meant(value[place.start : place.end])


def _meant(value: str) -> Iterator[str]:
    """What ``value`` of a pair may stand for: it may be quoted, in braces, have backslashes, or end at a comma."""
    bare = value.strip("\"'")
    yield bare
    yield bare.partition(",")[0]
    yield _ESCAPED.sub(r"\1", bare)
    if value[:1] in ("'", '"'):
        yield bare.replace(value[0] * 2, value[0])
    if value.startswith("{"):
        yield value[1:-1].replace("}}", "}")


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
    # The word "password" may be a password.
    if value == HIDDEN or (value.isalpha() and is_secret(value)):
        return False
    if len(value) < (_LEAST_OF_A_WORD if value.isalpha() else _LEAST_CHARS):
        return False
    return _NO_SECRET.fullmatch(value) is None and _CLASS.fullmatch(value) is None


def _without_known(text: str, known: Sequence[str]) -> str:
    """A short one may be part of names that have nothing to do with it, so it has to stand alone."""
    words: set[str] = set()
    signs: set[str] = set()
    for value in known:
        if value not in text:
            continue
        if _WORD.fullmatch(value) and len(value) < _LONG_CHARS:
            words.add(value)
        elif len(value) >= _UNLIKELY_CHARS:
            text = text.replace(value, HIDDEN)
        elif _SIGNS.fullmatch(value):
            signs.add(value)
        else:
            text = _pattern_of(value).sub(HIDDEN, text)
    for alone, values in ((_ALONE, words), (_SIGNS, signs)):
        if values:
            text = alone.sub(lambda found, of=values: HIDDEN if found[0] in of else found[0], text)  # type: ignore[misc]
    return text


def _pattern_of(value: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(value)}(?!\w)")


def _without_cut_secret(text: str, known: Sequence[str]) -> str:
    """An error that was cut may end in the middle of one."""
    if not text.endswith(_CUT):
        return text
    kept = text[: -len(_CUT)]
    for value in known:
        begin = value[:_LEAST_CHARS]
        at = kept.find(begin, max(0, len(kept) - min(len(value) - 1, _LONGEST_CUT)))
        while at >= 0:
            if value.startswith(kept[at:]):
                return f"{kept[:at]}{HIDDEN}{_CUT}"
            at = kept.find(begin, at + 1)
    return text


def _is_hidden(place: Place, text: str) -> bool:
    """A number of tokens is none; a password may be a number."""
    if not place.name:
        return True
    value = text[place.start : place.end]
    is_code = place.sign != "=" and _CODE.match(value) is not None and place.sign != ":"
    if is_code or value.startswith(HIDDEN):
        return False
    return _PASSWORD.search(place.name) is not None or not _NO_SECRET.fullmatch(value.rstrip("),"))

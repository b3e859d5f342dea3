"""Masking of passwords, keys and tokens in settings, arguments and documents that the API shows. They are found by the
preceding text: a name that indicates a secret, ``://user:``, ``Bearer``.

In doubt a value is masked, because its author can still read it in the original file. Logs and failures are the matter
of `app.model.secret_texts`, which searches with the same patterns.

The search takes time proportional to the length of the text, for every text, because settings of jobs can be hostile.
So no pattern may backtrack over matched text, and a value is examined only after a name that indicates a secret.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from app.model.javaoptions import ALL_JAVA_OPTION_SETTINGS
from app.model.jobgraph import MAX_SETTING_CHARS
from app.model.variables import EXECUTOR_ENV, VARIABLES

HIDDEN: Final = "******"

# In lower case, and each alternative begins with a letter: what may stand before it is looked at behind it.
_SECRET: Final = re.compile(
    r"secret(?!ar)|passw(?:or)?d|pass(?:phrase|code)|pwd|pw(?![a-z])|credential|creds?(?<!sacred)(?![a-z])|jaas"
    r"|pass(?<!bypass)(?<!compass)(?<!surpass)(?<!trespass)(?![a-z]|[._-]?through)"
    r"|token(?!i[sz]|s?[._-]?per)(?<!(?:max|min|num|new)token)(?<!(?:max|min|num|new)[._-]token)"
    r"|connection[._-]?string|shared[._-]?access|user[._-]?info\Z|auth[._-]?param|encryption[._-]?context"
    r"|(?:aes|api|app|application|access|account|client|consumer|fernet|kms|license|private|provided|encryption"
    r"|decryption|master|shared|session|signing|ssh|storage|subscription|keystore)[._-]?key|key[._-]?pem|passkey"
    r"|cookie|webhook|dsn(?![a-z])|jwt(?![a-z])"
    r"|(?:sas|sig)(?<![a-z]sas)(?<![a-z]sig)(?![a-z])|amz-signature|goog-signature"
    r"|authorization(?<![a-z]authorization)|(?:auth|bearer)(?<![a-z]auth)(?<![a-z]bearer)\Z"
)
# What ends so says where a secret is, of which kind, whether or for how long.
_ABOUT: Final = re.compile(
    r"(?:provider|source(?<!resource)|class|factory|handler|uri|url(?<!webhook[._-]url)(?<!webhookurl)|endpoint"
    r"|file(?<!profile)|path|dir|location|name|alias|type|mechanism|algorithm|enabled|required|size|bits|length"
    r"|count(?<!account)|limit|seconds|interval|timeout|period|ratio|[._-]ms)\Z"
)
_LONGEST_NAME: Final = 1_000
# 'name': 'value' or 'name': 1, as a dictionary is shown, or JSON; ('name', 'value') of a call or a pair; and
# '--name', 'value' of a list.
_ENTRY: Final = re.compile(
    r"([\"'])((?<=\([\"'])|(?=--))?+([\w.-]++)\1\s*+(?(2)[:,]|:)\s*+"
    r"(\"(?:[^\"\\\n]|\\.)*+\"|'(?:[^'\\\n]|\\.)*+'|-?\d[\d.eE+-]*+)"
)
_SETTING_ARGUMENT: Final = re.compile(r"--?[\w-]++=([\w.-]++)=")
# A blank behind the colon is found by `Kind.sign`, and what follows Authorization by `Kind.bearer`.
_HEADER_ARGUMENT: Final = re.compile(r"(?:--?[\w-]++=)?+([\w.-]++)(?<!(?i:authorization)):(?!//|\s)")
# jdbc:oracle:thin:user/password@host
_ORACLE: Final = re.compile(
    r"jdbc:oracle:\w++:[^\s/@]{0,128}+/(\"[^\"\n]{0,256}+\"|[^\s'\"@]{0,256}+)@", re.IGNORECASE
)
_JWT: Final = re.compile(r"(?<![\w-])eyJ[\w-]{8,}+\.[\w-]{8,}+\.[\w-]*+")
_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN (?:(?:RSA|EC|DSA|OPENSSH|ENCRYPTED) )?PRIVATE KEY-----([^-*]++)"
)


class Place(NamedTuple):
    """A value from ``start`` to ``end``, which goes by ``name``, and what is between them."""

    name: str
    sign: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Kind:
    """How values stand in texts of one kind."""

    url_word: re.Pattern[str]
    """Text without a blank, which may be a URL."""
    url_user: re.Pattern[str]
    """scheme://user: of which only the end is needed. The password goes up to the last @ of the word."""
    longest_password: int
    sign: re.Pattern[str]
    """name= or, in a setting, name: and a blank, where the name is the word before the sign. What stands behind
    Authorization: is found by ``bearer``."""
    value: re.Pattern[str]
    bearer: re.Pattern[str]
    """What stands before a token, and the token."""


# PostgreSQL has a backslash before a blank or a quotation mark of a value; SQL Server has values in braces, where two
# closing ones stand for one. A value whose end is missing goes up to the end of the text.
SETTING: Final = Kind(
    url_word=re.compile(r"\S++"),
    url_user=re.compile(r"(?<=[\w+.-])://[^\s/?#:@]*+:"),
    longest_password=1_000_000,
    sign=re.compile(r"(?<![\w.%-])([\w.%-]++)(\s*+=\s*+|(?<!(?i:authorization)):[ \t]++)"),
    value=re.compile(
        r"(?:\"(?:\\.|\"\"|[^\"\\])*+(?:\"|\Z)|'(?:\\.|''|[^'\\])*+(?:'|\Z)|\{(?:[^}]|\}\})*+(?:\}|\Z))?+"
        r"(?:\\.|[^\s&;])*+",
        re.DOTALL,
    ),
    bearer=re.compile(
        r"(\bAuthorization[\"']?+\s*+[:=]\s*+[\"']?+(?:[A-Za-z]++[ \t]++)?+|\bBearer\s++)([^\s'\",;&]++)",
        re.IGNORECASE,
    ),
)

# In an error or a trace no value goes beyond its line, name==value compares, a port is no password, and Spark shows
# options as name -> value.
TRACE: Final = Kind(
    url_word=re.compile(r"[^\s'\"]++"),
    url_user=re.compile(r"(?<=[\w+.-])://[^\s/?#:@]*+:(?!\d{1,5}(?:[/?#,;)\]]|\Z))"),
    longest_password=512,
    sign=re.compile(r"(?<![\w.%-])([\w.%-]++)([ \t]*+(?:=(?!=)|->)[ \t]*+)"),
    value=re.compile(
        r"\"(?:\\.|[^\"\\\n])*+\"|'(?:\\.|[^'\\\n])*+'|\{(?:[^}\n]|\}\})*+\}?+|(?:\\[^\n]|[^\s&;])++"
    ),
    bearer=re.compile(
        r"(\bAuthorization[\"']?+\s*+[:=]\s*+[\"']?+(?:[A-Za-z]++\s++)?+|\bBearer\s++(?=[^\s\d]*+\d))"
        r"([A-Za-z0-9+/._~=-]{8,}+)",
        re.IGNORECASE,
    ),
)


def is_secret(name: str) -> bool:
    """Whether what goes by this name is to be hidden."""
    lowered = name[-_LONGEST_NAME:].lower()
    return _SECRET.search(lowered) is not None and _ABOUT.search(lowered) is None


def named_arguments(args: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Each argument of a command line as its name, what stands before its value, and the value: ``--token=abc``,
    ``--conf=token=abc``, or ``abc`` after ``--token``. The name is empty if it says nothing of secrets."""
    name = ""
    for arg in args:
        is_value = name and not arg.startswith("--")
        yield (name, "", arg) if is_value else named_argument(arg)
        name = "" if is_value or not arg.startswith("-") or "=" in arg or not is_secret(arg) else arg


def named_argument(arg: str) -> tuple[str, str, str]:
    """One argument that is not the value of the one before it, in the same three parts."""
    name, sign, value = arg.partition("=")
    if sign and is_secret(name):
        return name, name + sign, value
    for found in (_SETTING_ARGUMENT.match(arg), _HEADER_ARGUMENT.match(arg)):
        if found and is_secret(found[1]):
            return found[1], found[0], arg[found.end() :]
    return "", "", arg


def passwords_of_urls(text: str, kind: Kind) -> Iterator[Place]:
    """The password of each scheme://user:password@host."""
    if "://" not in text:
        return
    for match in kind.url_word.finditer(text):
        word, begin = match[0], match.start()
        for user in kind.url_user.finditer(word):
            end = word.rfind("@", user.end(), user.end() + kind.longest_password + 1)
            if end >= 0:
                yield Place("", "", begin + user.end(), begin + end)
                break
            if "@" not in word[user.end() :]:
                break


def pairs(text: str, kind: Kind) -> Iterator[Place]:
    """The values of name=value whose names speak of secrets. One that is within the value of another pair counts."""
    position = 0
    while found := kind.sign.search(text, position):
        position = found.end()
        if is_secret(found[1]) and (value := kind.value.match(text, position)):
            yield Place(found[1], found[2], *value.span())
            position = value.end()


def entries(text: str) -> Iterator[Place]:
    """The values, without their quotation marks, of 'name': 'value' whose names speak of secrets. Numbers too."""
    position = 0
    while match := _ENTRY.search(text, position):
        position = match.start(4)
        if is_secret(match[3]):
            position = match.end()
            marks = 1 if match[4][0] in "\"'" else 0
            yield Place(match[3], ":", match.start(4) + marks, position - marks)


def bearers(text: str, kind: Kind) -> Iterator[Place]:
    """The tokens behind Bearer and Authorization."""
    for match in kind.bearer.finditer(text):
        yield Place("", " ", *match.span(2))


def passwords_of_oracle(text: str) -> Iterator[Place]:
    """The password of each jdbc:oracle:thin:user/password@host."""
    for match in _ORACLE.finditer(text):
        yield Place("", "/", *match.span(1))


def json_web_tokens(text: str) -> Iterator[Place]:
    """What can be nothing else."""
    for match in _JWT.finditer(text):
        yield Place("", "", *match.span())


def private_keys(text: str) -> Iterator[Place]:
    """Those of PEM texts."""
    if " PRIVATE KEY-----" in text:
        for match in _PRIVATE_KEY.finditer(text):
            yield Place("", "", *match.span(1))


def hide_all(text: str, kind: Kind, counts: Callable[[Place, str], bool] = lambda _place, _text: True) -> str:
    """``text`` without the values at all places that have a secret, as far as it ``counts``."""
    finders: tuple[Callable[[str], Iterator[Place]], ...] = (
        partial(passwords_of_urls, kind=kind),
        passwords_of_oracle,
        entries,
        # Before the pairs: the value of Authorization=Basic abc would end at the blank.
        partial(bearers, kind=kind),
        partial(pairs, kind=kind),
        json_web_tokens,
        private_keys,
    )
    for find in finders:
        if places := [place for place in find(text) if counts(place, text)]:
            text = hide(text, places)
    return text


def hide(text: str, places: Iterable[Place]) -> str:
    """``text`` without its values at ``places``."""
    kept: list[str] = []
    position = 0
    for place in places:
        kept += text[position : place.start], HIDDEN
        position = place.end
    return "".join([*kept, text[position:]]) if kept else text


def masked(name: str, value: str) -> str:
    """``value`` of a setting, as far as it may be shown."""
    if is_secret(name) or name.startswith(EXECUTOR_ENV) or len(value) > MAX_SETTING_CHARS:
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
    shown = [_masked_argument(*named_argument(option)) for option in options]
    if shown == options:
        return text
    return " ".join(each if HIDDEN in each else shlex.quote(each) for each in shown)


def masked_arguments(args: Iterable[str]) -> list[str]:
    """Arguments of a program, without the values of options whose names speak of secrets."""
    return [_masked_argument(*parts) for parts in named_arguments(args)]


def _masked_argument(name: str, before: str, value: str) -> str:
    return before + HIDDEN if name else masked_text(value)


def masked_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """A job graph document with what is secret in its config, its args, its sources and its sinks hidden, and the value
    of every environment variable."""
    args = {"args": masked_arguments(document["args"])} if "args" in document else {}
    variables = {VARIABLES: dict.fromkeys(document[VARIABLES], HIDDEN)} if VARIABLES in document else {}
    return {
        **document,
        **args,
        **variables,
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

"""Authentication by bearer tokens from a file. Without a file every caller is `anonymous`, and the server
listens only on loopback.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from base64 import b64decode
from collections.abc import Callable, Collection
from pathlib import Path

import structlog

log = structlog.get_logger()

ANONYMOUS = "anonymous"
PRINCIPAL = "slotwise.principal"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}\Z")
_SHA256 = re.compile(r"sha256:[0-9a-fA-F]{64}\Z")
_METRICS_ONLY = "metrics-only:"
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+\Z")
_MIN_TOKEN_LENGTH = 16
_LOOK_EVERY_S = 1.0


class TokenFileError(ValueError):
    """The token file cannot be used; ``errors`` has a sentence for each reason."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__(" ".join(errors))
        self.errors = errors


class Tokens:
    """Names by the SHA-256 of their tokens. A look-up in a table of digests tells an attacker nothing by its time.
    ``metrics_only``: those of tokens that are for `GET /metrics` and nothing else."""

    def __init__(self, names_by_digest: dict[bytes, str], metrics_only: Collection[bytes] = ()) -> None:
        self._names = names_by_digest
        self._metrics_only = frozenset(metrics_only)

    def name_of(self, token: bytes) -> str | None:
        """The name of the user whose token this is."""
        digest = hashlib.sha256(token).digest()
        return None if digest in self._metrics_only else self._names.get(digest)

    def problems(self) -> list[str]:
        """What is not well with where they come from, in sentences."""
        return []

    def authenticate(self, headers: list[tuple[bytes, bytes]]) -> str | None:
        """The name of the caller, None if the request has no valid token of a user: as a bearer token, or as the
        password of its name, for clients that send nothing else."""
        name, token = _given(headers)
        known = self.name_of(token)
        return known if name is None or name == known else None

    def is_for_metrics(self, headers: list[tuple[bytes, bytes]]) -> bool:
        """Whether the request has a bearer token that is for metrics only."""
        name, token = _given(headers)
        return name is None and hashlib.sha256(token).digest() in self._metrics_only

    @classmethod
    def read(cls, path: Path) -> Tokens:
        """Read a token file: lines `name:token` or `name:sha256:<hex>`, with `metrics-only:` behind the first colon
        where it is for metrics only; empty lines and lines from `#` on are passed over.

        Raises:
            TokenFileError: it cannot be read, others may read it, it names no token, or a line is wrong.
        """
        try:
            with open(path, encoding="utf-8") as file:
                mode = os.fstat(file.fileno()).st_mode
                lines = file.read().splitlines()
        except OSError as error:
            raise TokenFileError([f"The token file {path} cannot be read: {error.strerror}."]) from None
        except UnicodeDecodeError:
            raise TokenFileError([f"The token file {path} is not a UTF-8 text file."]) from None
        if mode & stat.S_IROTH:
            raise TokenFileError([f"The token file {path} may be read by everyone: run chmod 600 {path}."])
        names: dict[bytes, str] = {}
        metrics_only: list[bytes] = []
        errors: list[str] = []
        for number, line in enumerate(lines, 1):
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            problem = _add(names, metrics_only, text)
            if problem:
                # The line itself is not shown: it may hold a secret.
                errors.append(f"The token file {path}, line {number}: {problem}.")
        if not errors and not names:
            errors.append(f"The token file {path} has no token: add a line such as name:token.")
        if errors:
            raise TokenFileError(errors)
        return cls(names, metrics_only)


class TokenFile(Tokens):
    """The tokens of a file, which is read again within a second of its change, when somebody calls.

    A file that cannot be used changes nothing: the tokens that were read before hold, and `problems` says so.
    """

    def __init__(self, path: Path, *, now_s: Callable[[], float] = time.monotonic) -> None:
        """
        Raises:
            TokenFileError: see `Tokens.read`.
        """
        self._path = path
        self._now_s = now_s
        self._problems: list[str] = []
        # Before it is read: what is written meanwhile is seen at the next look.
        self._seen = self._identity()
        self._looked_s = now_s()
        self._take(Tokens.read(path))

    def name_of(self, token: bytes) -> str | None:
        self._look()
        return super().name_of(token)

    def problems(self) -> list[str]:
        self._look()
        return list(self._problems)

    def _look(self) -> None:
        now_s = self._now_s()
        if now_s - self._looked_s < _LOOK_EVERY_S:
            return
        self._looked_s = now_s
        identity = self._identity()
        if identity == self._seen:
            return
        self._seen = identity
        try:
            self._take(Tokens.read(self._path))
        except TokenFileError as error:
            self._problems = [f"{error} The previous tokens stay valid until the file is corrected."]
            log.error("the token file has changed and cannot be used", error=str(error))
        else:
            self._problems = []
            log.info("the token file was read again", names=sorted(set(self._names.values())))

    def _take(self, tokens: Tokens) -> None:
        self._names, self._metrics_only = tokens._names, tokens._metrics_only

    def _identity(self) -> tuple[int, ...]:
        """Another one when the file, its content or its mode has changed; empty: it is not there."""
        try:
            found = os.stat(self._path)
        except OSError:
            return ()
        return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _given(headers: list[tuple[bytes, bytes]]) -> tuple[str | None, bytes]:
    """A token, and the name that goes with it if it was sent as the password of one."""
    found = [value for name, value in headers if name == b"authorization"]
    scheme, _, given = found[0].strip().partition(b" ") if len(found) == 1 else (b"", b"", b"")
    match scheme.lower():
        case b"bearer":
            return None, given.strip()
        case b"basic":
            try:
                name, _, token = b64decode(given.strip(), validate=True).partition(b":")
            except ValueError:
                return None, b""
            return name.decode(errors="replace"), token
    return None, b""


def _add(names: dict[bytes, str], metrics_only: list[bytes], text: str) -> str | None:
    name, colon, secret = text.partition(":")
    is_for_metrics = secret.startswith(_METRICS_ONLY)
    secret = secret.removeprefix(_METRICS_ONLY)
    if not colon or not _NAME.match(name):
        return "name:token or name:sha256:<64 hexadecimal digits> is expected"
    if secret.startswith("sha256:"):
        if not _SHA256.match(secret):
            return "sha256: is followed by 64 hexadecimal digits"
        digest = bytes.fromhex(secret[7:])
    elif len(secret) < _MIN_TOKEN_LENGTH or not _TOKEN.match(secret):
        return f"a token has at least {_MIN_TOKEN_LENGTH} characters out of letters, digits and ._~+/=-"
    else:
        digest = hashlib.sha256(secret.encode()).digest()
    if digest in names:
        return "two lines have one token"
    names[digest] = name
    if is_for_metrics:
        metrics_only.append(digest)
    return None

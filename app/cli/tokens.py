"""The bearer token of the command line."""

from __future__ import annotations

import os
from pathlib import Path

from app.cli.errors import UsageError


def read_token(token_file: Path | None) -> str | None:
    """The bearer token of SLOTWISE_TOKEN or of a file whose first line is `token` or `name:token`."""
    if token_file is None:
        return _checked_token(os.environ.get("SLOTWISE_TOKEN", "").strip()) or None
    try:
        lines = token_file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise UsageError(f"The token file {token_file} cannot be read: {reason}.") from None
    used = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not used:
        raise UsageError(f"The token file {token_file} is empty: its first line should be a token.")
    return _checked_token(used[0].rpartition(":")[2].strip())


def _checked_token(token: str) -> str:
    if not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError("A bearer token is made of visible ASCII characters; this one is not.")
    return token

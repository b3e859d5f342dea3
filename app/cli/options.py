"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.errors import UsageError


def path_of(text: str) -> Path:
    """The parser of an option: an empty text would be the current directory."""
    if not text.strip():
        raise typer.BadParameter("should not be empty: leave it out for the default.")
    return Path(text)


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise UsageError("--reason should be one line of text without control characters.")
    return text


ReasonOption = Annotated[
    str | None,
    typer.Option("--reason", metavar="TEXT", parser=_one_line, help="Free text, kept in the history."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server", metavar="URL", help="The server; default: SLOTWISE_SERVER or http://127.0.0.1:8081."
    ),
]
TokenOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        parser=path_of,
        help="File with the bearer token; default: SLOTWISE_TOKEN.",
    ),
]
JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", show_default=False, help="Its id, the start of its id, or its name.")
]

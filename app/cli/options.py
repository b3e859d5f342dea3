"""Options that several commands share, and the expansion of those that belong together."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from app.cli.client import Client
from app.cli.errors import UsageError
from app.cli.output import print_json, say

T = TypeVar("T")


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
WaitOption = Annotated[bool, typer.Option("--wait", help="Return once the job has ended.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Print the effect of the change; change nothing.")
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


def by_vertex(texts: Iterable[str], read: Callable[[str], T | None], form: str) -> dict[str, T]:
    """What arguments such as `delays=1:4` say, by the name of the vertex. ``read`` parses what is behind the name, and
    gives None for what does not have the ``form``, which is named in the sentence of the error.

    Raises:
        UsageError: with everything that is wrong.
    """
    found: dict[str, T] = {}
    errors = []
    for text in texts:
        name, _, value = text.rpartition("=")
        said = read(value) if name else None
        if said is None:
            errors.append(f"{text!r} is not {form} .")
        elif name in found:
            errors.append(f"{name!r} is given twice.")
        else:
            found[name] = said
    if errors:
        raise UsageError(*errors)
    return found


@dataclass
class Call:
    """What every command has that asks a server: the options that name the server and the form of the answer, and a
    client of that server while the command runs."""

    as_json: JsonOption = False
    server: ServerOption = None
    token_file: TokenOption = None

    def __enter__(self) -> Call:
        self.client = Client(self.server, self.token_file)
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def answer(self, value: Any, text: str | Callable[[Any], object]) -> None:
        """Print ``value``: as JSON if that is asked for, else as ``text``, or by ``text``."""
        if self.as_json:
            print_json(value)
        elif isinstance(text, str):
            say(text)
        else:
            text(value)


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """``command`` for the command line: a parameter whose type is a dataclass is given as one option for each of its
    fields, those of `Call` behind all others. A `Call` is entered while the command runs."""
    own: list[inspect.Parameter] = []
    common: list[inspect.Parameter] = []
    bundles: dict[str, type] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        kind = parameter.annotation
        if not (isinstance(kind, type) and is_dataclass(kind)):
            own.append(parameter)
            continue
        bundles[parameter.name] = kind
        hints = get_type_hints(kind, include_extras=True)
        for each in fields(kind):
            usual = each.default_factory() if callable(each.default_factory) else each.default
            default = inspect.Parameter.empty if usual is MISSING else usual
            option = parameter.replace(name=each.name, default=default, annotation=hints[each.name])
            (common if kind is Call else own).append(option)
    # Two options of one name are refused here.
    signature = inspect.Signature([*own, *common])

    @functools.wraps(command)
    def run(**given: Any) -> None:
        with contextlib.ExitStack() as stack:
            for name, kind in bundles.items():
                bundle = kind(**{each.name: given.pop(each.name) for each in fields(kind)})
                given[name] = stack.enter_context(bundle) if isinstance(bundle, Call) else bundle
            command(**given)

    run.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
    run.__signature__ = signature  # type: ignore[attr-defined]
    return run

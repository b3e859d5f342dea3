"""Whether a failure is final or may be tried again, and whether the user's code raised it, by the names of exceptions.

The innermost exception of a chain that a list names decides. The lists of the job come before the built-in one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.driver.causes import Link
from app.model.option_values import FINAL_EXCEPTIONS, RECOVERABLE_EXCEPTIONS
from app.model.protocol import DriverSpec

FINAL: Final = (
    "ImportError",
    "AttributeError",
    "SyntaxError",
    "NameError",
    "NotImplementedError",
    "AnalysisException",
    "ParseException",
    "IllegalArgumentException",
    "UnsupportedOperationException",
)
"""What would happen again: the code or the plan is not there, or not possible."""

_ENVIRONMENT: Final = frozenset({"OSError", "MemoryError", "OperationalError", "InterfaceError"})
"""Raised by a function, but told of something else: a file, a network, a database, memory."""

# Errors of SQL in the data: class 22 of the standard, and what raise_error and assert_true raise.
_SQL_ERROR: Final = re.compile(
    r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\](?:(?!\[[A-Z]).){0,4000}?SQLSTATE: (22\w{3}|P0001)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """``why`` names what decided, in a sentence; it is empty if no list names anything in the chain."""

    recoverable: bool = True
    why: str = ""


_final: tuple[str, ...] = ()
_recoverable: tuple[str, ...] = ()


def use_rules(spec: DriverSpec) -> None:
    """From now on the lists of this job hold, names of classes, simple or fully qualified: a driver process has one job
    at a time."""
    global _final, _recoverable
    _final, _recoverable = tuple(spec.final_exceptions), tuple(spec.recoverable_exceptions)


def own_verdict(chain: Sequence[Link]) -> Verdict | None:
    """What the job's lists say; None if they name nothing in ``chain``."""
    for link in reversed(chain):
        for names, option, recoverable in (
            (_final, FINAL_EXCEPTIONS, False),
            (_recoverable, RECOVERABLE_EXCEPTIONS, True),
        ):
            named = next((name for name in names if name in link.names), None)
            if named is not None:
                what = "is tried again" if recoverable else "is final"
                kind = "" if named.rpartition(".")[2] == link.name else f", which {link.name} is"
                return Verdict(recoverable, f"It {what} because {option} names {named}{kind}.")
    return None


def default_verdict(chain: Sequence[Link]) -> Verdict:
    """What the built-in list says."""
    for link in reversed(chain):
        if any(name in link.names for name in FINAL):
            return Verdict(False, f"It is final because of {link.name}, which would be raised again.")
    return Verdict()


def user_error(name: str, place: str | None, text: str, chain: Sequence[Link]) -> str | None:
    """What tells an error of the user's code from others of the same query; None if it is none.

    ``place`` is the line of the user that raised it, ``text`` what Spark says. The same input raises it again, so it
    is tried again only a few times.
    """
    if any(link.names & _ENVIRONMENT for link in chain):
        return None
    if (match := _SQL_ERROR.search(text)) is not None:
        return match[1]
    return f"{name} at {place}" if place else None

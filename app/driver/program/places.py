"""The place of an event in a program: file and line of the innermost frame in the job's artifacts; and the end
of the program in one sentence.
"""

from __future__ import annotations

import ast
import linecache
import os
import sys
import traceback
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import FrameType

from app.driver.failures import DriverError, Failure, describe, one_line

_LEAVES = ("exit", "quit", "sys.exit", "os._exit")


class Places:
    """Knows which code is the program's: that in ``artifacts_dir``."""

    def __init__(self, artifacts_dir: Path, script: str) -> None:
        self.script = script
        # As Python writes it into code, and as the file system has it.
        self._roots = tuple(
            {f"{os.path.abspath(artifacts_dir)}{os.sep}", f"{artifacts_dir.resolve()}{os.sep}"}
        )

    def named(self, file: str) -> str | None:
        """The name of ``file`` among the artifacts; None if it is not the program's."""
        return next((file[len(root) :] for root in self._roots if file.startswith(root)), None)

    def here(self) -> str:
        """Where the program is in this thread: ``job.py, line 12``."""
        return self.of_frame(sys._getframe(1)) or self.script

    def is_inside(self) -> bool:
        """Whether the program has called what runs in this thread."""
        return self.of_frame(sys._getframe(1)) is not None

    def of_frame(self, frame: FrameType | None) -> str | None:
        """The innermost place of the program at or around ``frame``."""
        while frame is not None:
            if (name := self.named(frame.f_code.co_filename)) is not None:
                return f"{name}, line {frame.f_lineno}"
            frame = frame.f_back
        return None

    def of_error(self, error: BaseException) -> str:
        """Where the program raised ``error``, or was when something that it called did."""
        if isinstance(error, SyntaxError) and error.filename and error.lineno:
            name = self.named(error.filename)
            if name is not None:
                return f"{name}, line {error.lineno}"
        for summary in reversed(traceback.extract_tb(error.__traceback__)):
            if (name := self.named(summary.filename)) is not None:
                return f"{name}, line {summary.lineno}"
        return self.script


def under_way() -> BaseException | None:
    """The exception with which the program is ending in this thread: it has not caught it, or will raise it again."""
    error = sys.exception()
    if error is None or error.__traceback__ is None or isinstance(error, GeneratorExit):
        return None
    # Only the frame that is the first of its traceback handles it, in a `try` around the line that it came through.
    frame, came_from = error.__traceback__.tb_frame, error.__traceback__.tb_lineno
    try:
        module = ast.parse("".join(linecache.getlines(frame.f_code.co_filename)))
    except (SyntaxError, ValueError):
        return error
    for each in ast.walk(module):
        if isinstance(each, ast.Try | ast.TryStar) and _covers(each.body, came_from):
            for handler in each.handlers:
                if _covers(handler.body, frame.f_lineno) and not any(map(_ends, ast.walk(handler))):
                    return None
    return error


def _covers(statements: Iterable[ast.stmt], line: int) -> bool:
    return any(each.lineno <= line <= (each.end_lineno or 0) for each in statements)


def _ends(node: ast.AST) -> bool:
    """Whether a program goes no further behind ``node``: it raises, or leaves."""
    return isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and ast.unparse(node.func) in _LEAVES)


def failure_of(error: BaseException, places: Places, where: str = "") -> Failure | None:
    """Why a program that raised ``error`` has failed; None if that was its way to end well.

    ``where``: the place in the program, if it is not in the traceback.
    """
    stack = "".join(traceback.format_exception(error))
    place = where or places.of_error(error)
    if isinstance(error, SystemExit):
        return _of_exit(error, place, stack)
    if isinstance(error, DriverError):
        told = str(error)
        return replace(
            describe(error), sentence=one_line(told if told.startswith(place) else f"{place}: {told}")
        )
    if isinstance(error, SyntaxError):
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        told = f"{place}: {type(error).__name__}: {error.msg}; the program runs with Python {python}."
        return Failure(one_line(told), stack, recoverable=False)
    if isinstance(error, ModuleNotFoundError) and error.name:
        told = (
            f"{place}: there is no module {error.name}: it is neither among the artifacts of the job "
            "nor installed for the Python that runs the program."
        )
        return Failure(one_line(told), stack, recoverable=False)
    return describe(error, place=place)


def _of_exit(error: SystemExit, place: str, stack: str) -> Failure | None:
    if error.code in (None, 0):
        return None
    said = f"sys.exit({error.code})" if isinstance(error.code, int) else f"the message: {error.code}"
    told = one_line(f"{place}: the program ended with {said}")
    return Failure(
        told if told.endswith((".", "!", "?")) else f"{told}.", stack, user_error=f"SystemExit at {place}"
    )

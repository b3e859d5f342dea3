"""How a program ended, in one sentence with file and line."""

from __future__ import annotations

import sys
import traceback
from dataclasses import replace

from app.driver.failures import DriverError, Failure, describe, one_line
from app.driver.program.places import Places


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

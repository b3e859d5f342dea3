"""Failures in words: what went wrong, in which vertex, and whether another attempt could get past it."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass


class DriverError(Exception):
    """Something that a person can act on. The message is one sentence.

    ``vertex`` is the name of the vertex concerned, ``recoverable`` whether another attempt may succeed unchanged,
    ``outside`` whether it is the cluster's doing and not the job's.
    """

    def __init__(
        self, message: str, *, vertex: str | None = None, recoverable: bool = False, outside: bool = False
    ) -> None:
        super().__init__(message)
        self.vertex = vertex
        self.recoverable = recoverable
        self.outside = outside


class Fenced(Exception):
    """Somebody newer owns the job: nothing more may be written."""


class BoundaryStop(Exception):
    """Raised at the top of a batch to end a query between two batches. Not a failure."""

    MARK = "slotwise-boundary-stop"

    def __init__(self) -> None:
        super().__init__(self.MARK)


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure as it is reported. ``sentence`` is for people, ``stack`` for the log.

    ``by_cluster``: it is known to be the cluster's doing.
    """

    sentence: str
    stack: str
    vertex: str | None = None
    recoverable: bool = True
    by_cluster: bool = False

    @property
    def outside(self) -> bool:
        """Whether executors or their workers were lost, for no reason that the job has given."""
        return self.by_cluster or _LOST_EXECUTOR.search(self.sentence) is not None


_FINAL_ERRORS = (ImportError, AttributeError, SyntaxError, NameError, NotImplementedError)
_FINAL_SPARK = (
    "AnalysisException",
    "ParseException",
    "IllegalArgumentException",
    "UnsupportedOperationException",
)
_LOST_EXECUTOR = re.compile(
    r"ExecutorLostFailure.*(exited unrelated to the running tasks|[Ww]orker lost|decommission)"
)
_SOURCE_ERROR = "SourceError"
_IN_THE_WAY = "written by another process"

# What Spark's own words leave out.
_HINTS = {
    "Python worker failed to connect back": (
        " (Spark gives a new Python process 10 s, and this host was too slow or has too much to do)"
    ),
}

# The last line of a Python traceback, as PySpark carries it through the JVM.
_PYTHON_LINE = re.compile(
    r"^\s*(?!SQLSTATE:)((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Warning)?): (.+)$"
)
_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+), in (.+)$')
_QUERY_PREAMBLE = re.compile(r"^\[STREAM_FAILED\].*?terminated with exception:\s*", re.DOTALL)
_ERROR_CLASS = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_LIBRARY = ("/pyspark/", "/py4j/", "/app/driver/", "<frozen")


def describe(error: BaseException, *, vertex: str | None = None) -> Failure:
    """``error`` as a sentence with its place, for a report."""
    stack = "".join(traceback.format_exception(error))
    if isinstance(error, DriverError):
        return Failure(str(error), stack, error.vertex or vertex, error.recoverable, error.outside)
    name, message, place = _root_cause(error, stack)
    where = f"Vertex {vertex}" if vertex else "The job"
    if name == _SOURCE_ERROR:
        # Our own words; the same rows would be met again, unless somebody was in the way.
        return Failure(
            one_line(f"{where} failed: {message}"), stack, vertex, recoverable=_IN_THE_WAY in message
        )
    message += _HINTS.get(message.rstrip("."), "")
    at = f" at {place}" if place else ""
    sentence = f"{where} failed{at}: {name}: {message}" if message else f"{where} failed{at} with {name}."
    final = isinstance(error, _FINAL_ERRORS) or type(error).__name__ in _FINAL_SPARK
    return Failure(one_line(sentence), stack, vertex, recoverable=not final)


def one_line(text: str, limit: int = 1000) -> str:
    """``text`` without line breaks, cut to ``limit`` characters."""
    joined = " ".join(text.split())
    return joined if len(joined) <= limit else joined[: limit - 3] + "..."


def _root_cause(error: BaseException, stack: str) -> tuple[str, str, str | None]:
    """The innermost cause: its type, its message without Spark's wrapping, and the user's line if there is one.

    A Python error that crossed the JVM arrives as text: the traceback inside the message names the true cause.
    """
    # What Spark adds about the query ("Identifier: [...]") looks like the last line of a traceback.
    text = _spark_text(error).partition("=== Streaming Query ===")[0]
    name, message = type(error).__name__, text
    if _came_through_spark(error):
        inner = [match for line in text.splitlines() if (match := _PYTHON_LINE.match(line))]
        inner = [match for match in inner if not match.group(1).startswith(("pyspark.", "py4j."))] or inner
        if inner:
            name, message = inner[-1].group(1).rpartition(".")[2], inner[-1].group(2)
        else:
            message = _first_paragraph(text)
    return name, _ERROR_CLASS.sub("", message), _place(text if _came_through_spark(error) else stack)


def _came_through_spark(error: BaseException) -> bool:
    return type(error).__module__.startswith(("pyspark.", "py4j."))


def _spark_text(error: BaseException) -> str:
    if type(error).__name__ == "Py4JJavaError":
        java = getattr(error, "java_exception", None)
        found = ""
        try:
            while java is not None:
                name, message = java.getClass().getSimpleName(), java.getMessage()
                # A cause without a message, as a NullPointerException, says less than what it caused.
                if message or not found:
                    found = f"{name}: {message or 'no message'}"
                java = java.getCause()
        except Exception:
            return str(error)
        return found or str(error)
    return str(error)


def _first_paragraph(text: str) -> str:
    """What a Spark message says, without 'query terminated' around it and the JVM stack and hints behind it."""
    stripped = _ERROR_CLASS.sub("", _QUERY_PREAMBLE.sub("", text.strip()))
    kept: list[str] = []
    for line in stripped.splitlines():
        if line.strip().startswith(
            ("at org.", "at java.", "at scala.", "JVM stacktrace", "Driver stacktrace", "== ")
        ):
            break
        if not line.strip() and kept:
            break
        kept.append(line.strip())
    paragraph = " ".join(kept)
    return re.sub(r"\s*SQLSTATE: \w+.*$", "", paragraph) or type(text).__name__


def _place(text: str) -> str | None:
    """The innermost frame that is not of a library: file and line."""
    for line in reversed(text.splitlines()):
        match = _FRAME.match(line)
        if (
            match
            and not any(part in match.group(1) for part in _LIBRARY)
            and "site-packages" not in match.group(1)
        ):
            return f"{match.group(1).rpartition('/')[2]}:{match.group(2)}"
    return None

"""Failures as they are reported: sentence, vertex, whether another attempt may succeed, whether the cluster caused it.

They follow from what an exception is made of: its causes in Python and in the JVM, also those that are only text in a
message. Their names say whether it is final or may be tried again, and whether the user's code raised it. An exception
that was merely being handled when another was raised is no cause of it, and is left out. The innermost exception of a
chain that a list names decides. The lists of the job come before the built-in one.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import re
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from app.model.option_values import FINAL_EXCEPTIONS, RECOVERABLE_EXCEPTIONS
from app.model.protocol import DriverSpec

_MOST_LINKS: Final = 100
_TOO_GENERAL: Final = frozenset({"object", "BaseException", "Exception"})
_HANDLED: Final = "During handling of the above exception, another exception occurred:"

# What Spark adds about the query ("Identifier: [...]") looks like the last line of a traceback.
_QUERY_MARK: Final = "=== Streaming Query ==="

# The last line of a Python traceback, as PySpark carries it through the JVM.
_PYTHON_LINE: Final = re.compile(
    r"^\s*(?!SQLSTATE:)((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Warning)?): (.+)$"
)
_PYTHON_END: Final = re.compile(
    r"^\s*((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Warning))(?:: .*)?$"
)
_JAVA_NAME: Final = re.compile(r"(?:^|: )((?:[a-z_][\w$]*\.)+[A-Z][\w$]*(?:Exception|Error))(?=:|\s|$)")


@dataclass(frozen=True, slots=True)
class Link:
    """One exception of a chain. ``names``: every name that stands for it, simple and fully qualified.

    A class of Python answers to the names of its superclasses too, one of Java or of Spark only to its own.
    """

    name: str
    names: frozenset[str]


def chain_of(error: BaseException) -> tuple[Link, ...]:
    """``error`` and its causes, outermost first."""
    found: dict[Link, None] = {}
    for cause in _causes(error):
        found[_link_of(type(cause))] = None
        if _came_through_spark(cause):
            for link in _carried(cause):
                found.setdefault(link)
    return tuple(found)[:_MOST_LINKS]


def _came_through_spark(error: BaseException) -> bool:
    return type(error).__module__.startswith(("pyspark.", "py4j."))


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        # PySpark has what Java names as the cause of an error in a field of its own.
        cause = cause.__cause__ or getattr(cause, "_cause", None)


def _link_of(kind: type) -> Link:
    spark = kind.__module__.startswith(("pyspark.", "py4j."))
    names = {kind.__name__, f"{kind.__module__}.{kind.__qualname__}"}
    for above in kind.__mro__[1:]:
        # Spark's own hierarchy is another in Python than in Java, and says too much: a number that cannot be cast is
        # an illegal argument.
        if above.__name__ not in _TOO_GENERAL and (not spark or above.__module__ == "builtins"):
            names |= {above.__name__, f"{above.__module__}.{above.__qualname__}"}
    return Link(kind.__name__, frozenset(names))


def _carried(error: BaseException) -> list[Link]:
    """What came with ``error`` from the JVM: first Java's causes, then Python's, which caused those."""
    text, thrown = "", list[str]()
    with contextlib.suppress(Exception):
        text = str(error).partition(_QUERY_MARK)[0]
    with contextlib.suppress(Exception):
        for each in java_causes(getattr(error, "java_exception", None)):
            thrown.append(str(each.getClass().getName()))
    java, python = _classes_in(text)
    return [*map(_named, dict.fromkeys(thrown + java)), *map(_named, dict.fromkeys(python))]


def java_causes(thrown: Any) -> Iterator[Any]:
    """An exception of Java's and its causes, outermost first."""
    for _ in range(_MOST_LINKS):
        if thrown is None:
            return
        yield thrown
        thrown = thrown.getCause()


def _classes_in(text: str) -> tuple[list[str], list[str]]:
    """Classes of Java and of Python, outermost first. Python prints the cause before what it caused."""
    java: list[str] = []
    python: list[str] = []
    inside = False
    for line in text.splitlines():
        if inside and not line.startswith("    ") and (match := _PYTHON_END.match(line)):
            python.append(match[1])
            inside = False
        elif line.strip() == _HANDLED:
            del python[-1:]
        elif line.lstrip().startswith('File "') or "Traceback (most recent call last)" in line:
            inside = True
        if not inside or "Traceback" in line:
            java.extend(name for name in _JAVA_NAME.findall(line) if name not in python)
    return java, list(reversed(python))


def _named(name: str) -> Link:
    """A class of which only the name is here. Those that Python itself has are known."""
    simple = name.rpartition(".")[2].rpartition("$")[2]
    known = getattr(builtins, simple, None)
    java = "." in name and name[0].islower() and name.startswith(("java", "org.", "scala.", "com."))
    if not java and isinstance(known, type) and issubclass(known, BaseException):
        above = _link_of(known)
        return Link(simple, above.names | {name})
    return Link(simple, frozenset({simple, name}))


FINAL: Final = (
    "ImportError", "AttributeError", "SyntaxError", "NameError", "NotImplementedError", "AnalysisException",
    "ParseException", "IllegalArgumentException", "UnsupportedOperationException",
)  # fmt: skip
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


def _own_verdict(chain: Sequence[Link]) -> Verdict | None:
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


class DriverError(Exception):
    """Something that a person can act on. The message is one sentence.

    ``vertex`` is the name of the vertex concerned, ``recoverable`` whether another attempt may succeed unchanged,
    ``by_cluster`` whether it is known to be the cluster's doing. ``failure``: what was found out before.
    """

    def __init__(
        self, message: str, *, vertex: str | None = None, recoverable: bool = False, by_cluster: bool = False
    ) -> None:
        super().__init__(message)
        self.vertex = vertex
        self.recoverable = recoverable
        self.by_cluster = by_cluster
        self.failure: Failure | None = None

    @classmethod
    def of(cls, failure: Failure) -> DriverError:
        """``failure`` as an exception; `describe` gives it back."""
        error = cls(
            failure.sentence,
            vertex=failure.vertex,
            recoverable=failure.recoverable,
            by_cluster=failure.by_cluster,
        )
        error.failure = failure
        return error


class Fenced(Exception):
    """A newer driver owns the job: nothing more may be written."""


class BoundaryStop(Exception):
    """Raised at the top of a batch to end a query between two batches. Not a failure."""

    MARK = "slotwise-boundary-stop"

    def __init__(self) -> None:
        super().__init__(self.MARK)


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure as it is reported. ``sentence`` is for people, ``stack`` for the log.

    ``by_cluster``: it is known to be the cluster's doing. ``why``: a sentence on what in its chain of causes made it
    recoverable or not. ``user_error``: what the user's code raised, and where; the same input raises it again.
    ``query_id`` and ``batch_id``: of which query, and its batch, -1 for none.
    """

    sentence: str
    stack: str
    vertex: str | None = None
    recoverable: bool = True
    by_cluster: bool = False
    why: str = ""
    user_error: str | None = None
    query_id: str = ""
    batch_id: int = -1

    @classmethod
    def final(cls, sentence: str) -> Failure:
        """A failure that would come again, and needs no stack trace."""
        return cls(sentence, "", recoverable=False)

    @property
    def outside(self) -> bool:
        """Whether the cluster is to blame and not the job's code: executors or their workers were lost, for no reason
        that the job has given. The scheduler then blames neither a rescale nor a new version."""
        return self.by_cluster or (
            _LOST_EXECUTOR.search(self.sentence.partition("ExecutorLostFailure")[2]) is not None
        )


TRANSIENT_ERRNOS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.EAGAIN}
)
"""Errors of the operating system that may be gone at the next attempt."""

_LOST_EXECUTOR = re.compile(r"exited unrelated to the running tasks|[Ww]orker lost|decommission")
_READING = re.compile(r"Encountered error while reading file (\S+?)\.?(?:\s|$)")

# What Spark's own words leave out.
_HINTS = {
    "Python worker failed to connect back": (
        " (Spark gives a new Python process 10 s, and this host was too slow or has too much to do)"
    )
}

_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+), in (.+)$')
_QUERY_PREAMBLE = re.compile(r"^\[STREAM_FAILED\].*?terminated with exception:\s*", re.DOTALL)
_ERROR_CLASS = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_LIBRARY = ("/pyspark/", "/py4j/", "/app/driver/", "<frozen", "site-packages")
_STANDARD = re.compile(r"/lib(?:64)?/python3\.\d+/")


def describe(error: BaseException, *, vertex: str | None = None, place: str | None = None) -> Failure:
    """``error`` as a sentence with its place, for a report. ``place``: file and line, if they are known already."""
    stack = "".join(traceback.format_exception(error))
    if isinstance(error, DriverError) and error.failure is not None:
        return replace(error.failure, vertex=error.vertex or error.failure.vertex or vertex)
    chain = chain_of(error)
    if isinstance(error, DriverError):
        said = Failure(str(error), stack, error.vertex or vertex, error.recoverable, error.by_cluster)
        return _ruled(said, chain)
    name, message, found = _root_cause(error, stack)
    where = f"Vertex {vertex}" if vertex else "The job"
    text = _spark_text(error) if _came_through_spark(error) else ""
    message += _HINTS.get(message.rstrip("."), "")
    lead = place or (f"{where} failed at {found}" if found else f"{where} failed")
    sentence = f"{lead}: {name}: {message}" if message else f"{lead}{':' if place else ' with'} {name}."
    verdict = default_verdict(chain)
    raised = user_error(name, place or found, text, chain)
    told = Failure(one_line(sentence), stack, vertex, verdict.recoverable, why=verdict.why, user_error=raised)
    return _ruled(told, chain)


def _ruled(failure: Failure, chain: Sequence[Link]) -> Failure:
    """The lists of the job win. What they call recoverable is tried as often as the restart strategy allows."""
    verdict = _own_verdict(chain)
    if verdict is None:
        return failure
    raised = None if verdict.recoverable else failure.user_error
    return replace(failure, recoverable=verdict.recoverable, why=verdict.why, user_error=raised)


def one_line(text: str, limit: int = 1000) -> str:
    """``text`` without line breaks, cut to ``limit`` characters."""
    joined = " ".join(text.split())
    return joined if len(joined) <= limit else joined[: limit - 3] + "..."


def _root_cause(error: BaseException, stack: str) -> tuple[str, str, str | None]:
    """The innermost cause: its type, its message without Spark's wrapping, and the user's line if there is one.

    A Python error that crossed the JVM arrives as text: the traceback inside the message names the true cause.
    """
    text = _spark_text(error).partition(_QUERY_MARK)[0]
    name, message = type(error).__name__, text
    if _came_through_spark(error):
        inner = [match for line in text.splitlines() if (match := _PYTHON_LINE.match(line))]
        inner = [match for match in inner if not match.group(1).startswith(("pyspark.", "py4j."))] or inner
        if inner:
            name, message = inner[-1].group(1).rpartition(".")[2], inner[-1].group(2)
        else:
            message = _first_paragraph(text)
    return name, _ERROR_CLASS.sub("", message), _place(text if _came_through_spark(error) else stack)


def _spark_text(error: BaseException) -> str:
    if type(error).__name__ != "Py4JJavaError":
        return str(error)
    found, file = "", ""
    try:
        for java in java_causes(getattr(error, "java_exception", None)):
            name, message = java.getClass().getSimpleName(), java.getMessage()
            if message and (read := _READING.search(message)):
                file = read[1]
            # A cause without a message, as a NullPointerException, says less than what it caused.
            if message or not found:
                found = f"{name}: {message or 'no message'}"
    except Exception:
        return str(error)
    if file and file not in found:
        name, _, message = found.partition(": ")
        found = f"{name}: file {file}: {message}"
    return found or str(error)


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
    return paragraph.partition("SQLSTATE: ")[0].rstrip() or type(text).__name__


def _place(text: str) -> str | None:
    """The innermost frame that is neither of a library nor of Python itself: file and line."""
    for line in reversed(text.splitlines()):
        match = _FRAME.match(line)
        if match is None or _STANDARD.search(match[1]) or any(part in match[1] for part in _LIBRARY):
            continue
        return f"{match[1].rpartition('/')[2]}:{match[2]}"
    return None

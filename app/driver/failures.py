"""Failures as they are reported: sentence, vertex, whether another attempt may succeed, and whether the cluster is to
blame (`Failure.outside`)."""

from __future__ import annotations

import errno
import logging
import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.driver.causes import (
    PYTHON_LINE,
    QUERY_MARK,
    Link,
    came_through_spark,
    chain_of,
    default_verdict,
    is_of_files,
    java_causes,
    own_verdict,
    says_nothing,
    user_error,
)

log = logging.getLogger(__name__)


class DriverError(Exception):
    """Something that a person can act on. The message is one sentence.

    ``vertex`` is the name of the vertex concerned, ``recoverable`` whether another attempt may succeed unchanged,
    ``by_cluster`` whether it is known to be the cluster's doing, ``by_files`` as in `Failure`. ``failure``: what was
    found out before.
    """

    def __init__(
        self,
        message: str,
        *,
        vertex: str | None = None,
        recoverable: bool = False,
        by_cluster: bool = False,
        by_files: bool = False,
    ) -> None:
        super().__init__(message)
        self.vertex = vertex
        self.recoverable = recoverable
        self.by_cluster = by_cluster
        self.by_files = by_files
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
    ``query_id`` and ``batch_id``: of which query, and its batch, -1 for none. ``by_files``: a file of the input or of
    the checkpoint is damaged or gone. ``killed``: somebody, or the kernel, has ended the process that failed.
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
    by_files: bool = False
    killed: bool = False

    @classmethod
    def final(cls, sentence: str) -> Failure:
        """A failure that would come again, and needs no stack trace."""
        return cls(sentence, "", recoverable=False)

    @property
    def is_of_jvm(self) -> bool:
        """Whether it is what the end of a JVM looks like: a call without an answer, or the end of its SparkContext."""
        return _OF_JVM.search(self.stack) is not None

    @property
    def outside(self) -> bool:
        """Whether the cluster is to blame and not the job's code: executors or their workers were lost, for no reason
        that the job has given, or a process was killed. The scheduler then blames neither a rescale nor a new version.
        """
        return (
            self.by_cluster
            or self.killed
            or _LOST_EXECUTOR.search(self.sentence.partition("ExecutorLostFailure")[2]) is not None
        )


TRANSIENT_ERRNOS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.EAGAIN}
)
"""Errors of the operating system that may be gone at the next attempt."""

_OF_JVM = re.compile(
    r"Py4JNetworkError|Answer from Java side is empty|in connect_to_java_server|Py4JError: An error occurred while "
    r"calling \S+$|exception str\(\) failed|SparkContext (?:was|has been) shut ?down|stopped SparkContext"
    r"|Shutdown in progress|RpcEnv already stopped"
    r"|/py(?:spark|4j)/(?:.*\n){2,4}(?:Connection\w+|BrokenPipe|EOF)Error\b",
    re.MULTILINE,
)
_LOST_EXECUTOR = re.compile(r"exited unrelated to the running tasks|[Ww]orker lost|decommission")
_READING = re.compile(r"Encountered error while reading file (\S+?)\.?(?:\s|$)")

# What Spark's own words leave out. The JVM of a driver ends with its heap, so these heaps are those of executors.
_EXECUTOR_HEAP = (
    " (the heap of an executor is full: its size is the server's setting cluster_executor_memory_mb)"
)
_HINTS = {
    "Java heap space": _EXECUTOR_HEAP,
    "exited with code 52": _EXECUTOR_HEAP,
    "Python worker failed to connect back": (
        " (Spark gives a new Python process 10 s, and this host was too slow or has too much to do)"
    ),
}

_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+), in (.+)$')
_QUERY_PREAMBLE = re.compile(r"^\[STREAM_FAILED\].*?terminated with exception:\s*", re.DOTALL)
_BEHIND = re.compile(r"at [\w.$/<>-]+\(|at (?:org|java|scala)\.|JVM stacktrace|Driver stacktrace|== ")
# The first node of a plan that streams or is not resolved, behind what Spark says of it.
_PLAN = re.compile(r"[~'!][A-Z]\w+")
_CAUSED_BY = re.compile(r"^\s*Caused by: ", re.MULTILINE)
_POSITION = re.compile(r"\(line \d+, pos \d+\)")
_ERROR_CLASS = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_SQL_STATE = re.compile(r"(?<!\s)\s*+SQLSTATE: \w{5}\s*+\Z")
_LIBRARY = ("/pyspark/", "/py4j/", "/app/driver/", "<frozen", "site-packages")
_STANDARD = re.compile(r"/lib(?:64)?/python3\.\d+/")


def describe(
    error: BaseException, *, vertex: str | None = None, place: str | None = None, query: str | None = None
) -> Failure:
    """``error`` as a sentence with its place, for a report. ``place``: file and line, if they are known already.
    ``query``: by its sink, in which it came up; which vertex has failed is not known."""
    stack = "".join(traceback.format_exception(error))
    if isinstance(error, DriverError) and error.failure is not None:
        return replace(error.failure, vertex=error.vertex or error.failure.vertex or vertex)
    chain = chain_of(error)
    if isinstance(error, DriverError):
        said = Failure(str(error), stack, error.vertex or vertex, error.recoverable, error.by_cluster)
        return _ruled(replace(said, by_files=error.by_files), chain)
    text = _text_of(error) if came_through_spark(error) else None
    name, message, found = _root_cause(error, stack, text)
    where = f"Vertex {vertex}" if vertex else f"The query of {query}" if query else "The job"
    message += next((hint for known, hint in _HINTS.items() if known in message), "")
    lead = place or (f"{where} failed at {found}" if found else f"{where} failed")
    sentence = f"{lead}: {name}: {message}" if message else f"{lead}{':' if place else ' with'} {name}."
    verdict = default_verdict(chain)
    raised = user_error(name, found, place, text or "", chain)
    told = Failure(one_line(sentence), stack, vertex, verdict.recoverable, why=verdict.why, user_error=raised)
    return _ruled(replace(told, by_files=is_of_files(error, chain)), chain)


def _ruled(failure: Failure, chain: Sequence[Link]) -> Failure:
    """The lists of the job win. What they call recoverable is tried as often as the restart strategy allows."""
    verdict = own_verdict(chain)
    if verdict is None:
        return failure
    raised = None if verdict.recoverable else failure.user_error
    return replace(failure, recoverable=verdict.recoverable, why=verdict.why, user_error=raised)


def one_line(text: str, limit: int = 1000) -> str:
    """``text`` without line breaks, cut to ``limit`` characters."""
    joined = " ".join(text.split())
    return joined if len(joined) <= limit else joined[: limit - 3] + "..."


def _root_cause(error: BaseException, stack: str, text: str | None) -> tuple[str, str, str | None]:
    """The innermost cause: its type, its message without Spark's wrapping, and the user's line if there is one.

    A Python error that crossed the JVM arrives as ``text``: the traceback inside the message names the true cause.
    """
    name, message = type(error).__name__, str(error) if text is None else text
    if text is not None:
        inner = [match for line in text.splitlines() if (match := PYTHON_LINE.match(line))]
        inner = [match for match in inner if not match.group(1).startswith(("pyspark.", "py4j."))] or inner
        if inner:
            name, message = inner[-1].group(1).rpartition(".")[2], inner[-1].group(2)
        else:
            message = _first_paragraph(text)
    message = _SQL_STATE.sub("", _ERROR_CLASS.sub("", message))
    return name, message, _place(stack if text is None else text)


def _told(text: str, stack: str = "") -> str:
    """What ``text`` of Spark's says of what happened; where it only wraps that, the innermost cause that says it, from
    ``text`` or from the ``stack`` of the JVM."""
    head = text.partition(QUERY_MARK)[0]
    if not says_nothing(_first_paragraph(head)):
        return head
    causes = [each.partition(QUERY_MARK)[0] for each in _CAUSED_BY.split(f"{text}\n{stack}")[1:]]
    return next((each for each in reversed(causes) if not says_nothing(_first_paragraph(each))), head)


def _text_of(error: BaseException) -> str:
    """What ``error``, of Spark's, says of what happened; of causes in Java, the innermost that says something."""
    if type(error).__name__ != "Py4JJavaError":
        text = str(error)
        told, read = _told(text, getattr(error, "_stackTrace", "")), _READING.search(text)
        return told if read is None or read[1] in told else f"file {read[1]}: {told}"
    found, file = "", ""
    try:
        for java in java_causes(getattr(error, "java_exception", None)):
            name, message = java.getClass().getSimpleName(), java.getMessage()
            if message and (read := _READING.search(message)):
                file = read[1]
            told = _told(message or "")
            # A cause without a message, as a NullPointerException, says less than what it caused.
            if not found or not says_nothing(_first_paragraph(told)):
                found = f"{name}: {told or 'no message'}" if (message or "").startswith(told) else told
    except Exception as gone:
        log.debug("the JVM does not say what has failed: %s", gone)
    if file and file not in found:
        name, _, message = found.partition(": ")
        found = f"{name}: file {file}: {message}"
    return found or str(getattr(error, "errmsg", ""))


def _first_paragraph(text: str) -> str:
    """What a Spark message says, without 'query terminated' around it and the plan, the JVM stack and hints behind."""
    stripped = _ERROR_CLASS.sub("", _QUERY_PREAMBLE.sub("", text.strip()))
    kept: list[str] = []
    for line in stripped.splitlines():
        if _BEHIND.match(line.strip()) or (kept and kept[-1].endswith(";") and _PLAN.match(line)):
            break
        if not line.strip() and kept:
            break
        kept.append(line.strip())
    told, _, behind = " ".join(kept).partition("SQLSTATE: ")
    told = told.rstrip().removesuffix(";")
    at = _POSITION.search(behind)
    return f"{told.removesuffix('.')} {at[0]}" if at else told


def _place(text: str) -> str | None:
    """The innermost frame that is neither of a library nor of Python itself: file and line."""
    for line in reversed(text.splitlines()):
        match = _FRAME.match(line)
        if match is None or _STANDARD.search(match[1]) or any(part in match[1] for part in _LIBRARY):
            continue
        return f"{match[1].rpartition('/')[2]}:{match[2]}"
    return None

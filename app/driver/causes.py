"""What an exception is made of: its causes in Python and in the JVM, also those that are only text in a message. And
what their names say: whether it is final or may be tried again, and whether the user's code raised it.

An exception that was merely being handled when another was raised is no cause of it, and is left out. The innermost
exception of a chain that a list names decides. The lists of the job come before the built-in one.
"""

from __future__ import annotations

import builtins
import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.model.option_values import FINAL_EXCEPTIONS, RECOVERABLE_EXCEPTIONS
from app.model.protocol import DriverSpec

_MOST_LINKS: Final = 100
_TOO_GENERAL: Final = frozenset({"object", "BaseException", "Exception"})
_HANDLED: Final = "During handling of the above exception, another exception occurred:"

# What Spark adds about the query ("Identifier: [...]") looks like the last line of a traceback.
QUERY_MARK: Final = "=== Streaming Query ==="

# The last line of a Python traceback, as PySpark carries it through the JVM.
PYTHON_LINE: Final = re.compile(
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
        if came_through_spark(cause):
            for link in _carried(cause):
                found.setdefault(link)
    return tuple(found)[:_MOST_LINKS]


def carries(error: BaseException, mark: str) -> bool:
    """Whether ``error`` or one of its causes, those in Java too, has ``mark`` in its text."""
    for cause in _causes(error):
        with contextlib.suppress(Exception):
            if mark in str(cause):
                return True
        with contextlib.suppress(Exception):
            java = java_causes(getattr(cause, "java_exception", None))
            if any(mark in str(each.getMessage()) for each in java):
                return True
    return False


def came_through_spark(error: BaseException) -> bool:
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
        text = str(error).partition(QUERY_MARK)[0]
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
    "ParseException", "IllegalArgumentException", "UnsupportedOperationException", "SparkClassNotFoundException",
)  # fmt: skip
"""What would happen again: the code or the plan is not there, or not possible."""

_ENVIRONMENT: Final = frozenset(
    {"OSError", "MemoryError", "OperationalError", "InterfaceError", "Py4JNetworkError"}
)
"""Raised by a function, but told of something else: a file, a network, a database, memory, a JVM that is gone."""

# The same, of Java, whose names say nothing of their superclasses. An EOFException is that of a worker that crashes.
_ENVIRONMENT_OF_JAVA: Final = re.compile(
    r"java\.(?:io\.(?!EOF|NotSerializable|Invalid)|net\.(?!MalformedURL|URISyntax)|nio\.file\.|sql\.SQL(?:Recoverable"
    r"|Transient|NonTransientConnection|Timeout)|util\.concurrent\.TimeoutException)|javax\.net\.ssl\."
)

# Errors of SQL in the data: class 22 of the standard, and what raise_error and assert_true raise.
_SQL_ERROR: Final = re.compile(
    r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\](?:(?!\[[A-Z]).){0,4000}?SQLSTATE: (22\w{3}|P0001)", re.DOTALL
)

# Sentences that wrap what has happened, or follow from it.
_SAYS_NOTHING: Final = re.compile(
    r"(?:^|^null|^(?:[\w$]+\.)+[A-Z][\w$]+"
    r"|Exception thrown in awaitResult|Job aborted|Writing job aborted|Task failed while writing rows"
    r"(?: to \S+)?|cancelled because SparkContext was shut down|An error occurred while calling \S+"
    r"|Multiple failures in stage materialization|and provide the full stack trace"
    r"|Encountered error while reading file \S+)[\s.:]*$"
)

WORKER_CRASHED: Final = "Python worker crashed"
_CRASH: Final = "Python worker exited unexpectedly (crashed)"


# What Spark calls a file of the input or of a checkpoint that is damaged or gone: conditions, and where it has none,
# classes and words.
_OF_FILES: Final = re.compile(
    r"\[(FAILED_READ_FILE|CANNOT_LOAD_STATE_STORE|MALFORMED_(?:LOG_FILE|RECORD_IN_PARSING)|INVALID_LOG_VERSION"
    r"|BATCH_METADATA_NOT_FOUND|CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED|PATH_NOT_FOUND"
    r"|STREAMING_CHECKPOINT_MISSING_METADATA_FILE|STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY"
    r"|STATE_STORE_(?:KEY_|VALUE_)?ROW_(?:FORMAT_VALIDATION|CHECKSUM_VERIFICATION)_(?:FAILURE|FAILED)"
    r"|STDS_FAILED_TO_READ_(?:OPERATOR_METADATA|STATE_SCHEMA))[A-Z_.]*\]"
    r"|Failed to read log file|batch \d+ (?:doesn't exist|not found in offset log)"
)
_FILE_CLASSES: Final = frozenset(
    {"ChecksumException", "JsonParseException", "ParquetDecodingException", "BlockMissingException"}
)
# What more tasks can bring about, in names and in words: then it is no matter of files, although one was not read.
_LOAD_CLASSES: Final = re.compile(
    r"OutOfMemory|Interrupted|Throttl|Socket|Connect|Time[dD]?[oO]ut|UnknownHost|NoRouteToHost|SSL|AWS|Sdk"
    r"|S3Exception|StorageException"
)
_LOAD_WORDS: Final = re.compile(
    r"OUT_OF_MEMORY|UNRELEASED_THREAD|Too many open files|annot allocate memory|No space left|[Qq]uota exceeded"
)


def is_of_files(error: BaseException, chain: Sequence[Link]) -> bool:
    """Whether a file of the input or of a checkpoint is damaged or gone, which no parallelism brings about."""
    said = []
    for cause in filter(came_through_spark, _causes(error)):
        with contextlib.suppress(Exception):
            said.append(str(cause).partition(QUERY_MARK)[0])
    text, named = "\n".join(said), [link.name for link in chain]
    if _OF_FILES.search(text) is None and _FILE_CLASSES.isdisjoint(named):
        return False
    return not (_LOAD_CLASSES.search(" ".join(named)) or _LOAD_WORDS.search(text))


def says_nothing(sentence: str) -> bool:
    """Whether ``sentence`` leaves open what has happened, which a cause may tell."""
    return _SAYS_NOTHING.search(sentence) is not None


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


def user_error(
    name: str, found: str | None, place: str | None, text: str, chain: Sequence[Link]
) -> str | None:
    """What tells an error of the user's code from others of the same query; None if it is none.

    ``found`` is the line of the user that raised it, in ``text``, which is what Spark says; ``place`` the one at which
    the program was. The same input raises it again, so it is tried again only a few times. A Python worker that crashes
    says nothing of who is to blame: if it does so for the same input each time, a function is.
    """
    if found is None and _CRASH in text:
        return WORKER_CRASHED
    if any(link.names & _ENVIRONMENT for link in chain):
        return None
    # What Python has raised in a task is further in than what Java makes of it.
    if chain and any(map(_ENVIRONMENT_OF_JAVA.match, chain[-1].names)):
        return None
    if (match := _SQL_ERROR.search(text)) is not None:
        return match[1]
    return f"{name} at {place or found}" if place or found else None

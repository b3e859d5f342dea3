"""What in a chain of causes decides whether a failure is tried again, and what is an error of the user's code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise

import pytest

from app.driver import causes
from app.driver.causes import FINAL, chain_of, default_verdict
from app.driver.failures import DriverError, describe
from tests.unit.driver.test_failures import JavaError


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Call it with the lists of the job."""

    def use(*, final: str = "", recoverable: str = "") -> None:
        monkeypatch.setattr(causes, "_final", tuple(final.split()))
        monkeypatch.setattr(causes, "_recoverable", tuple(recoverable.split()))

    yield use


def caused_by(*errors: BaseException) -> BaseException:
    """The first of ``errors``, each caused by the next."""
    for outer, inner in pairwise(errors):
        outer.__cause__ = inner
    return errors[0]


def from_spark(text: str) -> Exception:
    class PythonException(Exception):
        __module__ = "pyspark.errors.exceptions.captured"

    return PythonException(text)


CRASHED = (
    "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0 in stage "
    "1.0 (TID 1) (10.0.0.7 executor driver): org.apache.spark.SparkException: Python worker exited unexpectedly "
    "(crashed)\n\tat org.apache.spark.api.python.BasePythonRunner\nCaused by: java.io.EOFException\n"
)


TRACEBACK = """Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/pyspark/python/lib/pyspark.zip/pyspark/worker.py", line 1, in main
    process()
  File "/data/artifacts/code.py", line 5, in broken
    raise something
  File "/usr/lib/python3.11/json/decoder.py", line 355, in raw_decode
    raise something
{name}: {message}
"""
TASK = f"""
  An exception was thrown from the Python worker. Please see the stack trace below.
{TRACEBACK}

JVM stacktrace:
org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent \
failure: Lost task 0.0 in stage 1.0 (TID 1) (10.0.0.7 executor driver): org.apache.spark.api.python.PythonException: \
{TRACEBACK}
\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:581)
Caused by: java.io.IOException: broken pipe
\tat java.base/java.io.FileOutputStream.write(FileOutputStream.java:1)
"""


def in_a_task(name: str, message: str = "no luck") -> Exception:
    return from_spark(TASK.format(name=name, message=message))


def names(error: BaseException) -> list[str]:
    return [link.name for link in chain_of(error)]


# ---- the chain


def test_causes_are_followed_and_contexts_are_not() -> None:
    inner = caused_by(ValueError("a"), KeyError("b"), OSError("c"))
    inner.__cause__.__cause__.__context__ = AttributeError("handled")  # type: ignore[union-attr]
    assert names(inner) == ["ValueError", "KeyError", "OSError"]


def test_a_chain_that_bites_its_tail_ends() -> None:
    first, second = ValueError("a"), KeyError("b")
    first.__cause__, second.__cause__ = second, first
    assert names(first) == ["ValueError", "KeyError"]


def test_java_and_the_traceback_of_a_task_are_part_of_it() -> None:
    found = names(in_a_task("mycode.errors.BadRowError"))
    assert found == ["PythonException", "SparkException", "PythonException", "IOException", "BadRowError"]


def test_of_a_traceback_in_a_text_the_cause_is_inner_and_what_was_handled_is_out() -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/data/code.py", line 1, in a\n    x\n'
        "LookupError: first\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        "Traceback (most recent call last):\n"
        '  File "/data/code.py", line 2, in b\n    y\n'
        "AttributeError: second\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\n"
        '  File "/data/code.py", line 3, in c\n    z\n'
        "ValueError: third\n"
    )
    assert names(from_spark(text)) == ["PythonException", "ValueError", "LookupError"]


def test_py4j_gives_the_causes_themselves() -> None:
    class Named(JavaError):
        def getName(self) -> str:
            return f"org.example.{self.name}"

    class Py4JJavaError(Exception):
        __module__ = "py4j.protocol"
        java_exception = Named("SparkException", "aborted", Named("Broken", None))

    assert names(Py4JJavaError()) == ["Py4JJavaError", "SparkException", "Broken"]


def test_pyspark_has_the_cause_in_java_in_a_field() -> None:
    class AnalysisException(Exception):
        __module__ = "pyspark.errors.exceptions.captured"

    class StreamingQueryException(AnalysisException):
        _cause = AnalysisException("no such column")

    ended = StreamingQueryException("it was terminated")
    assert names(ended) == ["StreamingQueryException", "AnalysisException"]
    assert not default_verdict(chain_of(ended)).recoverable


def test_names_are_simple_or_full_and_those_of_python_are_those_of_its_superclasses_too() -> None:
    (link,) = chain_of(ConnectionResetError())
    assert {"ConnectionResetError", "ConnectionError", "OSError", "builtins.OSError"} <= link.names
    assert "Exception" not in link.names
    *_, inner = chain_of(in_a_task("ModuleNotFoundError"))
    assert "ImportError" in inner.names
    assert {"BadRowError", "mycode.errors.BadRowError"} == chain_of(in_a_task("mycode.errors.BadRowError"))[
        -1
    ].names


# ---- what is tried again


@pytest.mark.parametrize("name", [name for name in FINAL if name.endswith("Error")])
def test_what_is_final_is_so_wherever_it_is_in_the_chain(name: str) -> None:
    failure = describe(in_a_task(name))
    assert not failure.recoverable
    assert failure.why == f"It is final because of {name}, which would be raised again."


def test_a_subclass_of_what_is_final_is_final() -> None:
    assert not describe(in_a_task("ModuleNotFoundError", "No module named 'x'")).recoverable


def test_a_number_that_cannot_be_cast_is_no_illegal_argument() -> None:
    from pyspark.errors.exceptions.base import NumberFormatException

    assert describe(NumberFormatException("[CAST_INVALID_INPUT] no. SQLSTATE: 22018")).recoverable


def test_what_nobody_names_is_tried_again_without_a_word() -> None:
    failure = describe(in_a_task("ValueError"))
    assert (failure.recoverable, failure.why) == (True, "")


@pytest.mark.parametrize("named", ["BadRowError", "mycode.errors.BadRowError", "java.io.IOException"])
def test_the_job_names_what_is_final(rules, named: str) -> None:  # type: ignore[no-untyped-def]
    rules(final=named)
    failure = describe(in_a_task("mycode.errors.BadRowError"))
    assert not failure.recoverable
    assert failure.why == f"It is final because slotwise.failure.final-exceptions names {named}."


def test_the_job_names_what_is_not(rules) -> None:  # type: ignore[no-untyped-def]
    rules(recoverable="ImportError")
    failure = describe(in_a_task("ModuleNotFoundError"))
    assert failure.recoverable and failure.user_error is None
    assert failure.why == (
        "It is tried again because slotwise.failure.recoverable-exceptions names ImportError, which "
        "ModuleNotFoundError is."
    )


def test_of_several_that_are_named_the_innermost_decides(rules) -> None:  # type: ignore[no-untyped-def]
    rules(final="ValueError", recoverable="KeyError")
    assert describe(caused_by(ValueError(), KeyError())).recoverable
    assert not describe(caused_by(KeyError(), ValueError())).recoverable


def test_the_lists_hold_for_what_we_put_into_words_ourselves(rules) -> None:  # type: ignore[no-untyped-def]
    error = caused_by(
        DriverError("The sink cannot be written: Permission denied."), PermissionError(13, "no")
    )
    assert not describe(error).recoverable
    rules(recoverable="PermissionError")
    assert describe(error).recoverable
    assert describe(error).sentence == "The sink cannot be written: Permission denied."


# ---- errors of the user's code


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (in_a_task("ValueError"), "ValueError at code.py:5"),
        (in_a_task("mycode.errors.BadRowError"), "BadRowError at code.py:5"),
        (
            from_spark("[DIVIDE_BY_ZERO] Division by zero. Use x.\nSQLSTATE: 22012\n== SQL =="),
            "DIVIDE_BY_ZERO",
        ),
        (from_spark("[USER_RAISED_EXCEPTION] boo SQLSTATE: P0001"), "USER_RAISED_EXCEPTION"),
        (from_spark("[STREAM_FAILED] Query SQLSTATE: XXKST"), None),
        (in_a_task("ConnectionResetError"), None),
        (in_a_task("requests.exceptions.ConnectionError"), None),
        (in_a_task("psycopg.OperationalError"), None),
        (in_a_task("MemoryError"), None),
    ],
)
def test_what_counts_as_an_error_of_the_users_code(error: Exception, what: str | None) -> None:
    assert describe(error).user_error == what


def test_an_error_is_the_same_whatever_its_message() -> None:
    one, other = (describe(in_a_task("ValueError", message)) for message in ("row 7", "row 8"))
    assert one.user_error == other.user_error and one.sentence != other.sentence


def test_nothing_is_lost_on_the_way_through_an_exception() -> None:
    failure = describe(in_a_task("ValueError"))
    again = describe(DriverError.of(failure), vertex="mapped")
    assert asdict(again) == {**asdict(failure), "vertex": "mapped"}


# ---- damaged files: in the words of Spark 4.3, as real damages made it speak


def read_in_a_task(condition: str, cause: str) -> Exception:
    return from_spark(
        f"[{condition}] It was not possible. SQLSTATE: KD001\n\nJVM stacktrace:\n"
        f"org.apache.spark.SparkException: [{condition}] It was not possible.\n"
        "\tat org.apache.spark.api.python.SocketAuthServer.run(SocketAuthServer.scala:1)\n"
        f"Caused by: {cause}\n\tat java.base/java.net.Socket.connect(Socket.java:1)\n"
    )


NOT_PARQUET = "java.lang.RuntimeException: file:/in/a.parquet is not a Parquet file."


@pytest.mark.parametrize(
    ("condition", "cause"),
    [
        ("FAILED_READ_FILE.NO_HINT", NOT_PARQUET),
        ("FAILED_READ_FILE.NO_HINT", "java.io.EOFException: Unexpected end of input stream"),
        ("FAILED_READ_FILE.FILE_NOT_EXIST", "java.io.FileNotFoundException: File file:/in/a does not exist"),
        ("CANNOT_LOAD_STATE_STORE.UNCATEGORIZED", "java.io.IOException: Error reading delta file"),
        (
            "CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS",
            "java.io.FileNotFoundException: 7.delta",
        ),
        ("STREAMING_CHECKPOINT_MISSING_METADATA_FILE", "java.lang.RuntimeException: gone"),
        ("STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY", "java.lang.RuntimeException: gone"),
        ("MALFORMED_LOG_FILE", "java.lang.RuntimeException: garbage"),
        ("STREAM_FAILED", "org.apache.hadoop.fs.ChecksumException: Checksum error: file:/cp/offsets/7"),
        ("STREAM_FAILED", "com.fasterxml.jackson.core.JsonParseException: Unexpected character"),
        ("STREAM_FAILED", "java.lang.IllegalStateException: batch 0 doesn't exist"),
        (
            "STREAM_FAILED",
            "java.lang.IllegalStateException: Failed to read log file file:/cp/offsets/7. Incomplete",
        ),
    ],
)
def test_damaged_and_missing_files_are_known(condition: str, cause: str) -> None:
    failure = describe(read_in_a_task(condition, cause))
    assert failure.by_files and not failure.outside


@pytest.mark.parametrize(
    ("condition", "cause"),
    [
        ("FAILED_READ_FILE.NO_HINT", "java.net.SocketTimeoutException: Read timed out"),
        ("FAILED_READ_FILE.NO_HINT", "java.lang.OutOfMemoryError: Java heap space"),
        ("FAILED_READ_FILE.NO_HINT", "java.io.FileNotFoundException: /in/a (Too many open files)"),
        ("FAILED_READ_FILE.NO_HINT", "org.apache.hadoop.fs.s3a.AWSServiceThrottledException: Slow Down"),
        ("CANNOT_LOAD_STATE_STORE.ROCKSDB_STORE_PROVIDER_OUT_OF_MEMORY", "java.lang.RuntimeException: no"),
        ("CANNOT_LOAD_STATE_STORE.UNRELEASED_THREAD_ERROR", "java.lang.RuntimeException: no"),
        ("STREAM_FAILED", "java.io.EOFException"),
        ("STREAM_FAILED", "java.io.FileNotFoundException: /out/_temporary/0/part-1 (Permission denied)"),
    ],
)
def test_what_more_tasks_can_bring_about_is_no_matter_of_files(condition: str, cause: str) -> None:
    assert not describe(read_in_a_task(condition, cause)).by_files


@pytest.mark.parametrize("error", [in_a_task("FileNotFoundError"), FileNotFoundError("model.bin")])
def test_what_the_users_code_does_not_find_may_be_on_another_host(error: Exception) -> None:
    assert not describe(error).by_files


def test_what_we_find_ourselves_says_so() -> None:
    assert describe(DriverError("Its file /in/a is gone.", by_files=True)).by_files


def test_a_worker_that_crashes_counts_like_an_error_of_the_users_code() -> None:
    """Who ended it nobody says: that it comes for the same batch each time does."""
    failure = describe(from_spark(CRASHED))
    assert failure.user_error == "Python worker crashed"
    assert failure.recoverable and not failure.outside


@pytest.mark.parametrize(
    "text",
    [
        "Task 0 in stage 1.0 failed 4 times: java.lang.OutOfMemoryError: Java heap space",
        "ExecutorLostFailure (executor 1 exited caused by one of the running tasks): Command exited with code 52",
    ],
)
def test_a_full_heap_of_an_executor_is_told_with_its_setting(text: str) -> None:
    failure = describe(from_spark(text))
    assert "cluster_executor_memory_mb" in failure.sentence and not failure.outside


def test_a_worker_that_is_lost_with_its_executor_does_not() -> None:
    lost = "ExecutorLostFailure (executor 1 exited unrelated to the running tasks) Reason: Worker lost"
    assert describe(from_spark(f"{lost}\n{CRASHED}")).outside

"""How failures are put into words."""

from __future__ import annotations

import pytest
from pyspark.errors import ParseException

from app.driver.failures import DriverError, Failure, describe


def test_a_sentence_of_our_own_stays_as_it_is() -> None:
    failure = describe(DriverError("The table is gone.", vertex="store", recoverable=True))
    assert (failure.sentence, failure.vertex, failure.recoverable) == ("The table is gone.", "store", True)


def test_an_error_of_the_users_code_is_named_with_its_vertex() -> None:
    failure = describe(ValueError("no such\nluck"), vertex="mapped")
    assert failure.sentence == "Vertex mapped failed: ValueError: no such luck"
    assert failure.recoverable


def test_code_that_is_not_there_will_not_be_there_the_next_time() -> None:
    assert not describe(ImportError("nowhere")).recoverable


def test_a_host_that_is_too_slow_for_spark_is_said_to_be() -> None:
    failure = describe(RuntimeError("Python worker failed to connect back."))
    assert "this host was too slow" in failure.sentence
    assert failure.recoverable


class JavaError:
    """As py4j shows an exception of Java."""

    def __init__(self, name: str, message: str | None, cause: JavaError | None = None) -> None:
        self.name, self.message, self.cause = name, message, cause

    def getClass(self) -> JavaError:
        return self

    def getSimpleName(self) -> str:
        return self.name

    def getMessage(self) -> str | None:
        return self.message

    def getCause(self) -> JavaError | None:
        return self.cause


def of_java(error: JavaError) -> Exception:
    class Py4JJavaError(Exception):
        __module__ = "py4j.protocol"
        java_exception = error

    return Py4JJavaError()


def test_of_the_causes_in_java_the_innermost_that_says_something_is_named() -> None:
    """Spark names the file that it cannot read; under that is a NullPointerException of the decoder."""
    cause = JavaError("NullPointerException", None)
    cause = JavaError("SparkException", "[FAILED_READ_FILE] Cannot read /data/x", cause)
    sentence = describe(of_java(JavaError("SparkException", "Job aborted.", cause))).sentence
    assert "Cannot read /data/x" in sentence and "None" not in sentence


@pytest.mark.parametrize("end", [".  SQLSTATE: KD001", ". File does not exist.", "."])
def test_a_cause_that_does_not_name_the_file_is_told_with_it(end: str) -> None:
    cause = JavaError("SparkRuntimeException", "Malformed records are detected.")
    read = f"[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///data/a.csv{end}"
    sentence = describe(of_java(JavaError("SparkException", read, cause))).sentence
    assert sentence == (
        "The job failed: SparkRuntimeException: file file:///data/a.csv: Malformed records are detected."
    )


AWAIT = "Exception thrown in awaitResult: "
SHUT_DOWN = "Job 154 cancelled because SparkContext was shut down"
NOT_WRITTEN = (
    "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0 in stage "
    "1.0 (TID 1) (10.0.0.7 executor driver): org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while "
    "writing rows to file:/out. SQLSTATE: 58030\n\tat org.apache.spark.Executor.run(Executor.scala:1)\n"
    "Caused by: java.io.IOException: No space left on device\n\tat java.base/java.io.File.write(File.java:1)\n"
)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ([AWAIT, "Job aborted.", "No space left"], "No space left"),
        ([AWAIT, SHUT_DOWN], AWAIT.strip()),
        (["No space left", AWAIT], "No space left"),
        (["Cannot broadcast the table.", AWAIT, "", "Not enough memory"], "Not enough memory"),
    ],
)
def test_what_only_wraps_another_is_never_told_for_it(said: list[str], told: str) -> None:
    thrown = None
    for number, message in reversed(list(enumerate(said))):
        thrown = JavaError(f"Error{number}Exception", message, thrown)
    assert thrown is not None
    assert describe(of_java(thrown)).sentence.endswith(f"Exception: {told}")


def test_a_cause_that_came_as_text_is_told() -> None:
    sentence = describe(
        of_java(JavaError("SparkException", "Job aborted.", JavaError("E", NOT_WRITTEN)))
    ).sentence
    assert sentence == "The job failed: IOException: No space left on device"


def test_a_refusal_of_sparks_analysis_is_told_without_its_plan() -> None:
    class AnalysisException(Exception):
        __module__ = "pyspark.errors.exceptions.captured"

    said = "Except on a streaming DataFrame/Dataset on the right is not supported"
    plan = "~Except false\n:- ~Repartition 32769, false\n+- ~Project [value#1L]\n"
    failure = describe(AnalysisException(f"{said};\n{plan}"), vertex="v")
    assert failure.sentence == f"Vertex v failed: AnalysisException: {said}"
    assert "Project" in failure.stack
    other = describe(AnalysisException("SELECT 1;\nreason: disk full"))
    assert other.sentence.endswith("AnalysisException: SELECT 1; reason: disk full")


def of_a_query(message: str, *causes: str) -> Exception:
    """As PySpark has it: the stack of the JVM is not in its text."""
    begin = f"[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: {message} SQLSTATE: XXKST"
    text = f"{begin}\n=== Streaming Query ===\nIdentifier: [id = 1]\nCurrent State: ACTIVE"

    class StreamingQueryException(Exception):
        __module__ = "pyspark.errors.exceptions.captured"
        _stackTrace = "".join(
            f"{each}\n\tat org.apache.A.b(A.scala:1)\n"
            for each in (
                f"org.a.StreamingQueryException: {text}",
                *(f"Caused by: {cause}" for cause in causes),
            )
        )

    return StreamingQueryException(text)


@pytest.mark.parametrize(
    ("causes", "told", "raised"),
    [
        (["java.io.IOException: no luck"], "IOException: no luck", None),
        (["org.a.AException: no luck", "java.lang.NullPointerException"], "AException: no luck", None),
        (
            [
                "org.a.AException: [DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012",
                f"org.b.BException: {AWAIT}",
            ],
            "AException: Division by zero.",
            "DIVIDE_BY_ZERO",
        ),
        (
            [
                'org.a.AException: Traceback (most recent call last):\n  File "/a/code.py", line 5, in f\nKeyError: 7'
            ],
            "The job failed at code.py:5: KeyError: 7",
            "KeyError at code.py:5",
        ),
    ],
)
def test_a_query_is_told_with_what_was_behind_it(causes: list[str], told: str, raised: str | None) -> None:
    failure = describe(of_a_query(AWAIT, f"org.apache.spark.SparkException: {AWAIT}", *causes))
    assert failure.sentence.endswith(told) and failure.user_error == raised


def test_a_query_that_says_why_itself_is_told_by_that() -> None:
    failure = describe(of_a_query("Table t is gone.", "org.apache.spark.SparkException: no table"))
    assert failure.sentence == "The job failed: StreamingQueryException: Table t is gone."


def test_what_was_wrong_with_a_file_is_told_with_its_name() -> None:
    said = (
        "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///data/a.csv. SQLSTATE: KD001"
    )
    cause = "java.lang.IllegalArgumentException: Delimiter cannot be empty"
    failure = describe(of_a_query(said, f"org.apache.spark.SparkException: {said}", cause), query="out")
    assert failure.sentence == (
        "The query of out failed: StreamingQueryException: file file:///data/a.csv: "
        "java.lang.IllegalArgumentException: Delimiter cannot be empty"
    )


def test_an_error_of_syntax_says_where_it_is() -> None:
    said = (
        "[PARSE_SYNTAX_ERROR] Syntax error at or near 'numbers'. SQLSTATE: 42601 (line 3, pos 7)\n\n== SQL =="
    )
    assert describe(ParseException(said), vertex="v").sentence == (
        "Vertex v failed: ParseException: Syntax error at or near 'numbers' (line 3, pos 7)"
    )


def test_a_jvm_that_is_gone_cannot_be_asked_and_is_told_all_the_same() -> None:
    class Gone(JavaError):
        def getMessage(self) -> str:
            raise ConnectionRefusedError

    error = of_java(Gone("SparkException", ""))
    error.errmsg = "An error occurred while calling o12.save.\n"  # type: ignore[attr-defined]
    assert "calling o12.save" in describe(error).sentence


LOST = (
    "Vertex store failed: SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most "
    "recent failure: Lost task 0.3 in stage 1.0 (TID 3) (10.0.0.7 executor 1): ExecutorLostFailure (executor 1 exited "
)


@pytest.mark.parametrize(
    ("sentence", "outside"),
    [
        (LOST + "unrelated to the running tasks) Reason: Worker shutting down", True),
        (LOST + "caused by one of the running tasks) Reason: worker lost: 10.0.0.7", True),
        (LOST + "caused by one of the running tasks) Reason: Command exited with code 137", False),
        ("Vertex store failed: ConnectionError: too many connections", False),
    ],
)
def test_a_lost_worker_is_not_the_jobs_own_doing(sentence: str, outside: bool) -> None:
    assert Failure(sentence, "").outside is outside


@pytest.mark.parametrize("by_cluster", [False, True])
def test_an_error_says_itself_whether_it_is_the_clusters_doing(by_cluster: bool) -> None:
    said = describe(DriverError("There has been no executor.", by_cluster=by_cluster))
    assert (said.by_cluster, said.outside) == (by_cluster, by_cluster)

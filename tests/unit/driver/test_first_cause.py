"""What an attempt writes down as its failure: how its JVM ended, if that is what everything else follows from."""

from __future__ import annotations

import builtins
from typing import Any

import pytest

from app.driver import base_attempt
from app.driver.base_attempt import BaseAttempt, Ending
from app.driver.failures import Failure, describe

KILLED = Failure("The driver's JVM was killed by signal 9 (SIGKILL).", "", killed=True)


class Failing(BaseAttempt):
    """Without Spark: ``ends_s`` seconds from now its JVM has ended, never if None."""

    def __init__(self, ends_s: float | None) -> None:
        self._fenced = False
        self._ends_s = ends_s
        self._jvm_end = lambda within_s: KILLED if ends_s is not None and ends_s <= within_s else None
        self.told: dict[str, object] = {}

    def _until_end(self) -> Ending:
        raise AssertionError

    def _begun_version(self) -> int:
        return 1

    def _deliver(self, fields: dict[str, object]) -> None:
        self.told = fields


def told(monkeypatch: pytest.MonkeyPatch, failure: Failure, ends_s: float | None, *, runs: bool) -> Any:
    monkeypatch.setattr(base_attempt, "jvm_runs", lambda: runs)
    monkeypatch.setattr(base_attempt, "leave_word", lambda _directory, _fields: None)
    attempt = Failing(ends_s)
    attempt._work_dir = None  # type: ignore[assignment]
    assert attempt._fail(failure) is Ending.FAILED
    assert attempt.told["stack"] == failure.stack
    return attempt.told


def thrown(name: str, message: str = "", *, within: str = "") -> Failure:
    made = type(name, (Exception,), {"__module__": "py4j.protocol" if name.startswith("Py4J") else "a.b"})
    kind = getattr(builtins, name, made)
    failure = describe(kind(message))
    return Failure(failure.sentence, f"{within}{failure.stack}", user_error="X at job.py, line 3")


FOLLOWS = [
    thrown("Py4JNetworkError", "Error while sending or receiving"),
    thrown("Py4JNetworkError", "Answer from Java side is empty"),
    thrown("Py4JError", "An error occurred while calling o80.isActive"),
    thrown(
        "ConnectionRefusedError", "[Errno 111]", within='  File "/x/py4j/a.py", line 3, in f\n    x\n    ^\n'
    ),
    thrown(
        "EOFError", within='  File "/x/pyspark/serializers.py", line 3, in read_int\n    raise EOFError\n'
    ),
    thrown("SparkException", "Job 154 cancelled because SparkContext was shut down"),
    thrown("IllegalStateException", "Cannot call methods on a stopped SparkContext."),
]


@pytest.mark.parametrize("failure", FOLLOWS, ids=lambda each: each.sentence)
def test_what_follows_from_the_end_of_the_jvm_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, failure: Failure
) -> None:
    assert told(monkeypatch, failure, 3.0, runs=False)["error"] == KILLED.sentence
    of_jvm = told(monkeypatch, failure, 0.0, runs=True)
    assert (of_jvm["error"], of_jvm["outside"], of_jvm["user_error"]) == (KILLED.sentence, True, None)
    # Its SparkContext alone has ended, or a connection: nobody waits for what does not come.
    assert told(monkeypatch, failure, 3.0, runs=True)["error"] == failure.sentence
    assert told(monkeypatch, failure, None, runs=False)["error"] == failure.sentence


@pytest.mark.parametrize(
    "failure",
    [
        thrown("ValueError", "no luck"),
        thrown("Py4JError", "An error occurred while calling o80.foo. Trace:\npy4j.Py4JException: no method"),
        thrown("ConnectionRefusedError", "[Errno 111]", within='  File "/x/kafka/a.py", line 3\n'),
    ],
    ids=lambda each: each.sentence,
)
def test_any_other_failure_is_told_at_once_unless_the_jvm_has_ended(
    monkeypatch: pytest.MonkeyPatch, failure: Failure
) -> None:
    assert told(monkeypatch, failure, 3.0, runs=False)["error"] == failure.sentence
    assert told(monkeypatch, failure, 0.0, runs=False)["error"] == KILLED.sentence

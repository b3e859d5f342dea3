"""What is known of a job's executors, and since when there are too few."""

from __future__ import annotations

from dataclasses import replace

from app.model.protocol import Report
from app.worker.job.executors_seen import ExecutorsSeen, noted

JOB = "0123456789abcdef0123456789abcdef"


def of(present: int, wanted: int) -> Report:
    return Report(1, 0, "executors", executors=present, executors_wanted=wanted)


def test_since_when_there_are_too_few() -> None:
    seen = noted(None, 1, of(2, 2), 10)
    assert seen == ExecutorsSeen(1, 2, 2)
    seen = noted(seen, 1, of(1, 2), 20)
    assert seen == ExecutorsSeen(1, 1, 2, 20)
    # Others come, and more are wanted: there have been too few all the time.
    assert noted(seen, 1, of(2, 4), 30) == ExecutorsSeen(1, 2, 4, 20)
    assert noted(seen, 1, of(3, 2), 30) == ExecutorsSeen(1, 3, 2)
    assert noted(seen, 1, Report(2, 0, "batch"), 30) is seen, "it says nothing of them"


def test_another_attempt_has_others() -> None:
    seen = noted(None, 1, of(0, 2), 10)
    assert noted(seen, 2, Report(1, 0, "batch"), 20) is None
    assert noted(seen, 2, of(1, 2), 20) == ExecutorsSeen(2, 1, 2, 20)


def test_the_sentence_says_where_to_look() -> None:
    assert ExecutorsSeen(1, 2, 2).in_words(JOB, "spark://m:1", 0) == []
    seen = ExecutorsSeen(1, 1, 4, 10_000)
    assert seen.in_words(JOB, "spark://m:1", 54_900) == [
        "It has 1 of the 4 executors that it should have; others may be on their way."
    ]
    (sentence,) = seen.in_words(JOB, "spark://m:1", 55_500)
    assert sentence.startswith(
        "It has had 1 of the 4 executors that it should have for 46 s: its tasks take turns"
    )
    assert "the page of the Spark master" in sentence
    (sentence,) = seen.in_words(JOB, "k8s://https://api:6443", 55_500)
    assert f"`kubectl describe pods --selector slotwise/job={JOB}` says why." in sentence


def test_why_those_that_have_come_get_no_tasks_is_said_as_long_as_some_are_missing() -> None:
    why = "Executor 3 does not see /jobs."
    seen = noted(None, 1, replace(of(1, 2), executors_why=why), 10)
    assert seen is not None
    assert seen.in_words(JOB, "spark://m:1", 20)[1:] == [why]
    assert seen.in_words(JOB, "spark://m:1", 60_000)[1:] == [why]
    seen = noted(seen, 1, of(2, 2), 70_000)
    assert seen is not None and seen.in_words(JOB, "spark://m:1", 70_000) == []


def test_more_than_wanted_is_not_missing() -> None:
    assert (
        of(3, 2).missing_executors,
        of(1, 4).missing_executors,
        Report(1, 0, "batch").missing_executors,
    ) == (
        0,
        3,
        0,
    )

"""slotwise.failure.*: which failures are tried again, how often, and whether a query is restarted alone."""

from __future__ import annotations

import pytest

from app.model.jobgraph import JobType
from app.model.options import JobOptions, options_of_the_other_type

FINAL = "slotwise.failure.final-exceptions"
RECOVERABLE = "slotwise.failure.recoverable-exceptions"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("none", ()),
        ("ValueError", ("ValueError",)),
        (
            " ValueError,java.io.IOException ; a.b$C,ValueError",
            ("ValueError", "java.io.IOException", "a.b$C"),
        ),
    ],
)
def test_names_of_classes_are_a_list(text: str, names: tuple[str, ...]) -> None:
    options, errors = JobOptions.parse({FINAL: text})
    assert errors == [] and options.final_exceptions == names


@pytest.mark.parametrize(
    "text", ["", "Value Error", "ValueError,", "1Error", "a..b", "ValueError()", 7, True]
)
def test_what_is_no_name_of_a_class_is_refused(text: object) -> None:
    _, errors = JobOptions.parse({RECOVERABLE: text})
    assert len(errors) == 1
    assert errors[0].startswith(f"Option {RECOVERABLE}: names of exception classes with commas between them")


def test_there_may_be_a_hundred_of_them() -> None:
    names = [f"E{number}" for number in range(101)]
    assert JobOptions.parse({FINAL: ",".join(names[:100])})[1] == []
    (error,) = JobOptions.parse({FINAL: ",".join(names)})[1]
    assert "at most 100 names are allowed, found 101" in error


def test_a_name_cannot_be_in_both_lists() -> None:
    _, errors = JobOptions.parse({FINAL: "A, B", RECOVERABLE: "B"})
    assert errors == [f"Options {FINAL} and {RECOVERABLE} both name B: it can only be one of the two."]


def test_the_others() -> None:
    options, errors = JobOptions.parse(
        {"slotwise.failure.user-code-attempts": "0", "slotwise.failure.local-timeout": "5 s"}
    )
    assert errors == [] and (options.user_code_attempts, options.local_timeout_ms) == (0, 5_000)
    for name, text in (("user-code-attempts", "-1"), ("local-timeout", "-1 s"), ("local-timeout", "soon")):
        assert len(JobOptions.parse({f"slotwise.failure.{name}": text})[1]) == 1


def test_a_batch_job_has_no_query_to_restart_alone() -> None:
    mapping = {
        "slotwise.failure.local-timeout": "5 s",
        FINAL: "A",
        "slotwise.failure.user-code-attempts": "2",
    }
    (error,) = options_of_the_other_type(mapping, JobType.BATCH)
    assert error.startswith("Option slotwise.failure.local-timeout is for STREAMING jobs")

"""Deadlines of bounds, and rescales that are canceled, from the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.cli.conftest import JOB_ID
from tests.unit.cli.test_rescales import HISTORY, REQUIREMENTS, open_record, record

Run = Callable[..., Any]


def test_require_sends_the_deadline_in_headers(slotwise: Run, fake: Any) -> None:
    fake.on("PUT", REQUIREMENTS, (200, {}, {"ETag": '"2"'}))
    assert (
        slotwise("require", "delays", "delays=:4", "--deadline", "5min", "--on-timeout", "commit").status == 0
    )
    assert slotwise("require", "delays", "delays=:4", "--deadline", "5min", "--dry-run").status == 0
    one, two = fake.sent("PUT", REQUIREMENTS)
    assert (one.headers["x-slotwise-deadline"], one.headers["x-slotwise-on-timeout"]) == ("5min", "COMMIT")
    assert one.headers["if-match"] == '"1"'
    assert two.headers["x-slotwise-deadline"] == "5min" and "x-slotwise-on-timeout" not in two.headers


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--on-timeout", "COMMIT"), "--on-timeout goes with --deadline"),
        (("--deadline", "5 m\u00efn"), "--deadline should be a duration"),
        (("--deadline", "5min", "--on-timeout", "never"), "never"),
    ],
)
def test_require_refuses_deadlines_that_mean_nothing(
    slotwise: Run, fake: Any, options: tuple[str, ...], complaint: str
) -> None:
    outcome = slotwise("require", "delays", "delays=:4", *options)
    assert outcome.status == 2 and complaint in outcome.err
    assert fake.requests == []


def test_waiting_says_when_the_bounds_came_back(slotwise: Run, fake: Any) -> None:
    ended = record(2, terminalState="IGNORED", terminatedReason="RESOURCE_REQUIREMENTS_UPDATED")
    back = record(3, rollbackOf=2, message="Takes back the bounds of version 2: not in time.")
    fake.on("PUT", REQUIREMENTS, (200, {}, {"ETag": '"2"'}))
    histories = ([record(1)], [open_record(2), record(1)], [back, ended, record(1)])
    fake.on("GET", HISTORY, *((200, history) for history in histories))
    fake.on("GET", f"/jobs/{JOB_ID}/explanation", (200, {"vertices": {}, "rollback": None}))
    outcome = slotwise("require", "delays", "delays=:4", "--deadline", "1min", "--wait")
    assert outcome.status == 3
    assert outcome.err.splitlines() == [
        "Takes back the bounds of version 2: not in time.",
        "The former bounds are declared again; the job runs as before.",
    ]


def test_a_rescale_is_canceled_by_number_or_the_newest(slotwise: Run, fake: Any) -> None:
    fake.on("GET", HISTORY, (200, [open_record(7)]))
    url = f"/jobs/{JOB_ID}/rescales/{7:032x}"
    fake.on("DELETE", url, (200, {}, {"ETag": '"9"'}))
    outcome = slotwise("cancel-rescale", "delays", "--reason", "wrong job")
    assert (outcome.status, outcome.out) == (0, "Canceled; the bounds before are back, as version 9.\n")
    assert slotwise("cancel-rescale", "delays", "7", "--json").json["version"] == 9
    one, _ = fake.sent("DELETE", url)
    assert one.headers["x-slotwise-reason"] == "wrong job"


def test_a_rescale_that_is_on_its_way_is_not_canceled(slotwise: Run, fake: Any) -> None:
    fake.on("GET", HISTORY, (200, [open_record(7)]))
    fake.on("DELETE", f"/jobs/{JOB_ID}/rescales/{7:032x}", (409, {"errors": ["It is being carried out."]}))
    outcome = slotwise("cancel-rescale", "delays")
    assert (outcome.status, outcome.err) == (1, "It is being carried out.\n")
    fake.on("GET", HISTORY, (200, []))
    assert slotwise("cancel-rescale", "delays").err == "The job has no rescales.\n"

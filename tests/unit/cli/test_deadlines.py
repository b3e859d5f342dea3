"""Deadlines of bounds, and rescales that are canceled, from the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.model.ids import vertex_id
from tests.unit.cli.conftest import JOB_ID, explained
from tests.unit.cli.test_rescales import ACCEPTED, HISTORY, REQUIREMENTS, open_record, record
from tests.unit.cli.test_rescales import looks as given

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
    ("asked", "told"),
    [
        ("delays=:4", "The deadline does not count for delays, whose bounds have one already.\n"),
        ("flights=:4", ""),
    ],
)
def test_require_says_which_of_its_vertices_wait_for_an_earlier_deadline(
    slotwise: Run, fake: Any, asked: str, told: str
) -> None:
    waiting = f'unchanged; vertices="{vertex_id("delays", "delays")}"'
    fake.on("PUT", REQUIREMENTS, (200, {}, {"ETag": '"2"', "X-Slotwise-Deadline": waiting}))
    outcome = slotwise("require", "delays", asked, "--deadline", "5min", "--json")
    assert (outcome.status, outcome.err) == (0, told)
    assert outcome.json["earlierDeadlines"] == (["delays"] if told else [])


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
    back = record(3, **UNDO, message="Takes back the bounds of version 2: not in time.")
    fake.on("PUT", REQUIREMENTS, ACCEPTED)
    histories = ([open_record(2), record(1)], [back, ended, record(1)])
    given(fake, *histories)
    fake.on("GET", f"/jobs/{JOB_ID}/explanation", (200, explained()))
    outcome = slotwise("require", "delays", "delays=:4", "--deadline", "1min", "--wait")
    assert outcome.status == 3
    assert outcome.err.splitlines() == [
        "Takes back the bounds of version 2: not in time.",
        "The bounds before hold; the job runs as before.",
    ]


DELAYS = vertex_id("delays", "delays")
WAITS = {"version": 2, "rescale": 2, "bounds": {DELAYS: {"lowerBound": 1, "upperBound": 4}}, "begun": False}
TOLD = {
    "terminalState": "IGNORED",
    "terminatedReason": "NO_RESOURCES_OR_PARALLELISMS_CHANGE",
    "triggerCause": "UPDATE_REQUIREMENT",
    "message": "The bounds of delays of version 2 wait for their deadline.",
    "endTimestampInMillis": 1_700_000_000_000,
    "startTimestampInMillis": 1_700_000_000_000,
}
"""Of the record of bounds that wait while another one is open."""
APPLIED = {
    "triggerCause": "UPDATE_REQUIREMENT",
    "message": "The bounds of delays of version 2 wait no longer.",
}
UNDO = {"rollbackOf": 2, "triggerCause": "UPDATE_REQUIREMENT"}


def wait(
    slotwise: Run,
    fake: Any,
    *looks: tuple[list[dict[str, Any]], bool | int],
    upper: int = 4,
    status: str = "RUNNING",
) -> Any:
    """`require --wait` of bounds with a deadline. ``looks``: records since, and whether the bounds wait, or by which
    record they were applied, one after another. ``upper``: the bound that holds since they have left the queue."""
    fake.on("PUT", REQUIREMENTS, ACCEPTED)
    given(fake, *([*records, record(1)] for records, _ in looks))

    def vertex(upper: int) -> dict[str, Any]:
        declared = {"name": "delays", "lowerBound": 1, "upperBound": upper, "effectiveUpperBound": upper}
        return {DELAYS: {**declared, "inForce": upper}}

    def told(waits: bool | int) -> dict[str, Any]:
        if waits is True:
            return explained(WAITS, vertices=vertex(2))
        if waits:
            return explained({**WAITS, "begun": True, "rescale": waits}, vertices=vertex(4))
        return explained(vertices=vertex(upper), status=status)

    fake.on("GET", f"/jobs/{JOB_ID}/explanation", *((200, told(waits)) for _, waits in looks))
    return slotwise("require", "delays", "delays=:4", "--deadline", "1h", "--wait")


def test_what_ends_while_the_bounds_wait_is_not_their_outcome(slotwise: Run, fake: Any) -> None:
    """A slot came that the bounds before allow, then all."""
    small, own = record(2, parallelismInWords="delays 1->2"), record(3, **APPLIED)
    looks = (
        ([open_record(2)], True),
        ([small], True),
        ([small], True),
        ([open_record(3), small], False),
        ([own, small], False),
    )
    outcome = wait(slotwise, fake, *looks)
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out.startswith("Version 2: COMPLETED") and "delays 1->4" in outcome.out


@pytest.mark.parametrize("seen", ["waiting", "applied", "never"])
def test_the_record_by_which_the_bounds_were_applied_is_their_outcome(
    slotwise: Run, fake: Any, seen: str
) -> None:
    """That which the PUT named was only told, while another one was open; another small change came between."""
    small = record(3, parallelismInWords="delays 1->2", triggerCause="NEW_RESOURCE_AVAILABLE")
    told, own = record(2, **TOLD), record(4, **APPLIED)
    first: tuple[list[dict[str, Any]], bool | int] = ([told], True)
    if seen == "applied":
        first = ([open_record(4) | APPLIED, small, told], 4)
    looks = (*(() if seen == "never" else (first,)), ([own, small, told], False))
    outcome = wait(slotwise, fake, *looks)
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out.startswith("Version 2: COMPLETED") and "delays 1->4" in outcome.out


def test_bounds_that_were_applied_wait_again_if_their_slots_go(slotwise: Run, fake: Any) -> None:
    told = record(2, **TOLD)
    ended = record(
        3, **{**TOLD, "message": "Its bounds still wait for their deadline; what began has its own."}
    )
    looks = (
        ([open_record(3) | APPLIED, told], 3),
        ([ended, told], True),
        ([record(4, **APPLIED), ended, told], False),
    )
    assert wait(slotwise, fake, *looks).status == 0
    back = record(4, **{**UNDO, "rollbackOf": 3}, message="Takes back the bounds of version 2: not in time.")
    outcome = wait(slotwise, fake, *looks[:2], ([back, ended, told], False), upper=2)
    assert (outcome.status, outcome.err.splitlines()[0]) == (3, back["message"])


def test_bounds_that_were_applied_are_taken_back_by_the_number_of_that_record(
    slotwise: Run, fake: Any
) -> None:
    told, failed = record(2, **TOLD), record(3, **APPLIED, terminatedReason="EXCEPTION_OCCURRED")
    failed["terminalState"] = "FAILED"
    back = record(4, rollbackOf=3, message="Takes back rescale 3: it failed.")
    looks = (([open_record(3) | APPLIED, told], 3), ([back, failed, told], False))
    outcome = wait(slotwise, fake, *looks)
    assert outcome.status == 3 and outcome.err.startswith("The rescale was taken back: Takes back rescale 3")


def test_bounds_that_were_told_and_replaced_are_an_error(slotwise: Run, fake: Any) -> None:
    other = record(3, triggerCause="UPDATE_REQUIREMENT", requestedBy="bob")
    outcome = wait(slotwise, fake, ([record(2, **TOLD)], True), ([other, record(2, **TOLD)], False), upper=8)
    assert outcome.status == 1
    assert outcome.err == "Other bounds were declared while these waited for their deadline.\n"


@pytest.mark.parametrize(
    "reason", ["SUCCEEDED", "JOB_FAILOVER_RESTARTING", "NO_RESOURCES_OR_PARALLELISMS_CHANGE"]
)
def test_bounds_that_came_back_are_told_whatever_their_record_says(
    slotwise: Run, fake: Any, reason: str
) -> None:
    ended, other = record(2, terminatedReason=reason), record(3)
    back = record(4, **UNDO, message="Takes back the bounds.")
    looks = (([ended], True), ([other, ended], True), ([back, other, ended], False))
    outcome = wait(slotwise, fake, *looks, upper=2)
    assert outcome.status == 3
    assert "Takes back the bounds." in outcome.err


def test_what_was_undone_while_another_rescale_had_ended(slotwise: Run, fake: Any) -> None:
    other = record(3)
    ended = record(2, terminalState="IGNORED", terminatedReason="RESOURCE_REQUIREMENTS_UPDATED")
    looks = (([other, open_record(2)], True), ([record(4, **UNDO), other, ended], False))
    assert wait(slotwise, fake, *looks, upper=2).status == 3


def test_bounds_that_others_replaced_while_they_waited_are_an_error(slotwise: Run, fake: Any) -> None:
    looks = (([record(2)], True), ([record(2)], True), ([record(3), record(2)], False))
    outcome = wait(slotwise, fake, *looks, upper=8)
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err == "Other bounds were declared while these waited for their deadline.\n"


def test_a_job_that_ends_while_the_bounds_wait_is_an_error(slotwise: Run, fake: Any) -> None:
    looks = (([record(2)], True), ([record(2)], True), ([record(2)], False))
    outcome = wait(slotwise, fake, *looks, status="CANCELED")
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err == "The job ended while the bounds waited for their deadline.\n"


def test_a_rescale_is_canceled_by_number_or_the_newest(slotwise: Run, fake: Any) -> None:
    fake.on("GET", HISTORY, (200, [open_record(7)]))
    fake.on("GET", f"/jobs/{JOB_ID}/explanation", (200, explained()))
    url = f"/jobs/{JOB_ID}/rescales/{7:032x}"
    fake.on("DELETE", url, (200, {}, {"ETag": '"9"'}))
    outcome = slotwise("cancel-rescale", "delays", "--reason", "wrong job")
    assert (outcome.status, outcome.out) == (0, "Canceled; the bounds before hold, as version 9.\n")
    assert slotwise("cancel-rescale", "delays", "7", "--json").json["version"] == 9
    one, _ = fake.sent("DELETE", url)
    assert one.headers["x-slotwise-reason"] == "wrong job"


def test_what_waits_is_canceled_although_its_record_has_ended(slotwise: Run, fake: Any) -> None:
    history = [open_record(4), record(3), record(2), record(1)]
    fake.routes["GET", HISTORY] = lambda request: (
        200,
        [one for one in history if one["number"] < int(request.query.get("after", 9))],
    )
    fake.on("GET", f"/jobs/{JOB_ID}/explanation", (200, explained(cancelableRescales=[2, 3])))
    fake.on("DELETE", f"/jobs/{JOB_ID}/rescales/{3:032x}", (200, {}, {"ETag": '"9"'}))
    assert slotwise("cancel-rescale", "delays").status == 0


def test_a_cancel_whose_answer_was_lost_is_known_again(slotwise: Run, fake: Any) -> None:
    fake.on("GET", HISTORY, (200, [open_record(7)]))
    fake.on("GET", f"/jobs/{JOB_ID}/explanation", (200, explained()))
    url, lost = (
        f"/jobs/{JOB_ID}/rescales/{7:032x}",
        (503, {"errors": ["It is not known."]}, {"Retry-After": "0"}),
    )
    fake.on("DELETE", url, lost, (200, {}, {"ETag": '"9"'}))
    assert slotwise("cancel-rescale", "delays").status == 0
    one, two = (request.headers["idempotency-key"] for request in fake.sent("DELETE", url))
    assert one == two


def test_a_rescale_that_is_on_its_way_is_not_canceled(slotwise: Run, fake: Any) -> None:
    fake.on("GET", HISTORY, (200, [open_record(7)]))
    fake.on("GET", f"/jobs/{JOB_ID}/explanation", (200, explained()))
    fake.on("DELETE", f"/jobs/{JOB_ID}/rescales/{7:032x}", (409, {"errors": ["It is being carried out."]}))
    outcome = slotwise("cancel-rescale", "delays")
    assert (outcome.status, outcome.err) == (1, "It is being carried out.\n")
    fake.on("GET", HISTORY, (200, []))
    assert slotwise("cancel-rescale", "delays").err == "The job has no rescales.\n"

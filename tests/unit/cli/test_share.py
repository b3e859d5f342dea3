"""`slotwise share`: what is not given stays as it is, and what was declared is shown with what follows from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]
JOB_ID = "0123456789abcdef0123456789abcdef"
PATH = f"/jobs/{JOB_ID}/slot-share"
IN_FORCE = {"weight": 2, "priority": 1, "cap": 4}


def explained(**changes: Any) -> dict[str, Any]:
    told = {
        **IN_FORCE,
        "version": 2,
        "requestedBy": "ann",
        "reason": "late",
        "changedTimestampInMillis": 1_795_204_804_651,
        "share": 3,
        "allowed": 3,
        "why": "share",
        "missing": 0,
        "dueTimestampInMillis": None,
    }
    return {"slotShare": {**told, **changes}, "slots": {"held": 3, "used": 3, "desired": 8, "minimal": 1}}


@pytest.fixture
def shared(fake: Any) -> Any:
    fake.on("GET", PATH, (200, IN_FORCE, {"ETag": '"2"'}))
    fake.on("PUT", PATH, (200, {}, {"ETag": '"3"'}))
    fake.on("GET", f"/jobs/{JOB_ID}/explanation", (200, explained()))
    return fake


def test_without_options_it_shows(slotwise: Run, shared: Any) -> None:
    outcome = slotwise("share", "delays")
    headers, numbers, changed = (" ".join(line.split()) for line in outcome.out.splitlines())
    assert (headers, numbers) == ("weight priority cap held share why", "2 1 4 3 3 share")
    assert changed.startswith("changed 2026-") and changed.endswith(" by ann: late")
    assert not shared.sent("PUT", PATH)


def test_what_is_not_given_stays_as_it_is(slotwise: Run, shared: Any) -> None:
    assert slotwise("share", "delays", "--weight", "5", "--reason", "late").status == 0
    (put,) = shared.sent("PUT", PATH)
    assert put.json == {"weight": 5, "priority": 1, "cap": 4}
    assert (put.headers["if-match"], put.headers["x-slotwise-reason"]) == ('"2"', "late")
    slotwise("share", "delays", "--cap", "none", "--priority", "-3")
    assert shared.sent("PUT", PATH)[-1].json == {"weight": 2, "priority": -3, "cap": None}


def test_when_somebody_else_was_faster_it_is_read_again(slotwise: Run, shared: Any) -> None:
    shared.on("GET", PATH, (200, IN_FORCE, {"ETag": '"2"'}), (200, {**IN_FORCE, "cap": 6}, {"ETag": '"3"'}))
    shared.on("PUT", PATH, (412, {"errors": ["stale"]}), (200, {}, {"ETag": '"4"'}))
    assert slotwise("share", "delays", "--weight", "5").status == 0
    assert [put.json["cap"] for put in shared.sent("PUT", PATH)] == [4, 6]


def test_as_json(slotwise: Run, shared: Any) -> None:
    told = slotwise("share", "delays", "--json").json
    assert told == {"jobid": JOB_ID, **explained()["slotShare"]}
    assert slotwise("share", "delays", "--weight", "5", "--json").json["changed"] is True
    shared.on("PUT", PATH, (200, {}, {"ETag": '"2"'}))
    assert slotwise("share", "delays", "--weight", "2", "--json").json["changed"] is False
    assert "nothing changed" in slotwise("share", "delays", "--weight", "2").out


def test_when_it_has_to_give_is_told(slotwise: Run, shared: Any) -> None:
    shared.on("GET", f"/jobs/{JOB_ID}/explanation", (200, explained(dueTimestampInMillis=1_795_204_864_651)))
    assert "may be taken from 2026-" in slotwise("share", "delays").out


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--weight", "0"), "--weight should be a whole number from 1 to 1000, found 0."),
        (("--priority", "1001"), "--priority should be a whole number from -1000 to 1000, found 1001."),
        (("--cap", "0"), "--cap should be a whole number from 1 to 1000000, or none, found '0'."),
        (("--cap", "all"), "--cap should be a whole number from 1 to 1000000, or none, found 'all'."),
        (("--reason", "why"), "--reason goes with a change"),
        (("--weight", "2", "--reason", "a\nb"), "--reason should be one line"),
    ],
)
def test_what_is_typed_wrongly_is_told_and_nothing_sent(
    slotwise: Run, shared: Any, options: tuple[str, ...], sentence: str
) -> None:
    outcome = slotwise("share", "delays", *options)
    assert outcome.status == 2
    assert sentence in outcome.err
    assert not shared.sent("PUT", PATH)


def test_a_refusal_is_told_in_the_servers_words(slotwise: Run, shared: Any) -> None:
    shared.on("PUT", PATH, (409, {"errors": ["The cap of 1 slot(s) is below the 2."]}))
    outcome = slotwise("share", "delays", "--cap", "1")
    assert (outcome.status, outcome.err) == (1, "The cap of 1 slot(s) is below the 2.\n")

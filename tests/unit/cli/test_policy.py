"""`slotwise policy`: what is not given stays as it is, and what was declared is shown beside what counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]
JOB_ID = "0123456789abcdef0123456789abcdef"
PATH = f"/jobs/{JOB_ID}/scaling-policy"
COUNTS, STORE = "a" * 32, "b" * 32
SET = {
    "allVertices": {"floor": None, "ceiling": 8},
    "vertices": {COUNTS: {"floor": 2, "ceiling": None}},
}
WHEN = {"requestedBy": "olga", "reason": "peak", "changedTimestampInMillis": 1_795_204_804_651}


def vertex(name: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "lowerBound": 1,
        "upperBound": 16,
        "effectiveLowerBound": 1,
        "effectiveUpperBound": 8,
        "inForce": 4,
        **more,
    }


@pytest.fixture
def limited(fake: Any) -> Any:
    fake.on("GET", PATH, (200, SET, {"ETag": '"2"'}))
    fake.on("PUT", PATH, (200, {}, {"ETag": '"3"'}))
    named = [{"id": COUNTS, "name": "counts"}, {"id": STORE, "name": "store"}]
    fake.on("GET", f"/jobs/{JOB_ID}", (200, {"vertices": named}))
    explained = {
        "scalingPolicy": {**SET, "version": 2, **WHEN},
        "vertices": {COUNTS: vertex("counts", effectiveLowerBound=2), STORE: vertex("store", inForce=None)},
    }
    fake.on("GET", f"/jobs/{JOB_ID}/explanation", (200, explained))
    return fake


def test_without_limits_it_shows(slotwise: Run, limited: Any) -> None:
    outcome = slotwise("policy", "delays")
    headers, counts, store, changed = (" ".join(line.split()) for line in outcome.out.splitlines())
    assert headers == "vertex declared floor ceiling counts in force"
    assert counts == "counts 1 to 16 2 8 2 to 8 4"
    assert store == "store 1 to 16 - 8 1 to 8 -"
    assert changed.startswith("changed 2026-") and changed.endswith(" by olga: peak")
    assert not limited.sent("PUT", PATH)


def test_what_is_not_given_stays_as_it_is(slotwise: Run, limited: Any) -> None:
    assert slotwise("policy", "delays", "counts=:6", "store=3:none", "--reason", "night").status == 0
    (put,) = limited.sent("PUT", PATH)
    assert put.json == {
        "allVertices": {"floor": None, "ceiling": 8},
        "vertices": {COUNTS: {"floor": 2, "ceiling": 6}, STORE: {"floor": 3, "ceiling": None}},
    }
    assert (put.headers["if-match"], put.headers["x-slotwise-reason"]) == ('"2"', "night")
    slotwise("policy", "delays", f"{COUNTS}=none:", "--all", "2:none")
    assert limited.sent("PUT", PATH)[-1].json == {
        "allVertices": {"floor": 2, "ceiling": None},
        "vertices": {COUNTS: {"floor": None, "ceiling": None}},
    }


def test_clear_removes_what_is_not_given(slotwise: Run, limited: Any) -> None:
    slotwise("policy", "delays", "--clear", "--all", ":4")
    assert limited.sent("PUT", PATH)[-1].json == {"allVertices": {"ceiling": 4}, "vertices": {}}
    outcome = slotwise("policy", "delays", "--clear")
    assert limited.sent("PUT", PATH)[-1].json == {"allVertices": {}, "vertices": {}}
    assert outcome.out.startswith("Accepted as version 3.")


def test_when_nothing_changes_it_says_so(slotwise: Run, limited: Any) -> None:
    limited.on("PUT", PATH, (200, {}, {"ETag": '"2"'}))
    assert "nothing changed" in slotwise("policy", "delays", "counts=2:").out
    assert slotwise("policy", "delays", "counts=2:", "--json").json["changed"] is False


def test_as_json(slotwise: Run, limited: Any) -> None:
    assert slotwise("policy", "delays", "--json").json == {"jobid": JOB_ID, **SET}


def test_a_dry_run_shows_what_would_happen(slotwise: Run, limited: Any) -> None:
    told = {
        "currentParallelism": {COUNTS: 4, STORE: 4},
        "parallelism": {COUNTS: 6, STORE: 6},
        "slotsBefore": 4,
        "slotsAfter": 6,
        "rung": "in-place",
        "refused": [],
        "explanation": ["Why."],
    }
    limited.on("PUT", PATH, (200, told, {}))
    outcome = slotwise("policy", "delays", "--all", "6:", "--dry-run")
    assert limited.sent("PUT", PATH)[-1].query == {"dryRun": "true"}
    assert "slots: 4 now, 6 then" in outcome.out and "Why." in outcome.out
    limited.on("PUT", PATH, (200, {**told, "refused": ["The floor is too high."]}, {}))
    outcome = slotwise("policy", "delays", "--all", "6:", "--dry-run")
    assert (outcome.status, outcome.err) == (1, "The floor is too high.\n")


def test_the_history_is_shown_with_who_and_why(slotwise: Run, limited: Any) -> None:
    none: dict[str, Any] = {"allVertices": {}, "vertices": {}}
    versions = [{**none, "version": 3, **WHEN, "reason": None}, {**SET, "version": 2, **WHEN}]
    limited.on("GET", f"{PATH}/history", (200, versions))
    _, newest, before = (
        " ".join(line.split()) for line in slotwise("policy", "delays", "--history").out.splitlines()
    )
    assert newest.startswith("3 2026-") and newest.endswith("olga none -")
    assert before.endswith("olga all :8, counts 2: peak")
    assert slotwise("policy", "delays", "--history", "--json").json == versions


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("counts",), "'counts' is not VERTEX=FLOOR:CEILING"),
        (("counts=:",), "'counts=:' is not VERTEX=FLOOR:CEILING"),
        (("counts=0:4",), "'counts=0:4' is not VERTEX=FLOOR:CEILING"),
        (("counts=-1:4",), "is not VERTEX=FLOOR:CEILING"),
        (("=1:4",), "'=1:4' is not VERTEX=FLOOR:CEILING"),
        (("counts=1:", "counts=2:"), "'counts' is given twice."),
        (("--all", "4"), "--all '4' is not FLOOR:CEILING"),
        (("--reason", "why"), "--reason and --dry-run go with a change"),
        (("--dry-run",), "--reason and --dry-run go with a change"),
        (("--history", "--clear"), "--history shows, and changes nothing"),
        (("--clear", "--reason", "a\nb"), "--reason should be one line"),
    ],
)
def test_what_is_typed_wrongly_is_told_and_nothing_sent(
    slotwise: Run, limited: Any, options: tuple[str, ...], sentence: str
) -> None:
    outcome = slotwise("policy", "delays", *options)
    assert outcome.status == 2
    assert sentence in outcome.err
    assert not limited.sent("PUT", PATH)


def test_an_unknown_vertex_is_named_with_those_that_there_are(slotwise: Run, limited: Any) -> None:
    outcome = slotwise("policy", "delays", "nope=1:")
    assert (outcome.status, outcome.err) == (
        1,
        "'nope' is not a vertex of the job; its vertices are counts, store.\n",
    )

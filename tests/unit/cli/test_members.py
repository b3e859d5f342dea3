"""`slotwise members`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Run = Callable[..., Any]
PATH = "/cluster/members"
MEMBER = {
    "id": "control-1-4711-5f2c",
    "url": "http://127.0.0.1:8081",
    "host": "control-1",
    "pid": 4711,
    "version": "0.1.0",
    "seat": 1,
    "slots": 8,
    "cluster": None,
    "taskManager": "host",
    "jobs": 3,
    "state": "ALIVE",
    "joinedTimestampInMillis": 1795204811989,
    "isSelf": True,
    "isArbiter": True,
}
OTHER = {**MEMBER, "seat": 2, "state": "LOST", "isArbiter": False}


def test_members_are_a_table(slotwise: Run, fake: Any) -> None:
    fake.on("GET", PATH, (200, {"shared": True, "alone": None, "members": [MEMBER, OTHER]}))
    lines = slotwise("members").out.splitlines()
    assert lines[0].split()[:4] == ["seat", "state", "arbiter", "url"]
    assert lines[-2].split()[:4] == ["1", "ALIVE", "yes", "http://127.0.0.1:8081"]
    assert lines[-1].split()[:3] == ["2", "LOST", MEMBER["url"]]


def test_one_that_is_alone_says_so(slotwise: Run, fake: Any) -> None:
    why = "No other server can share these jobs: for a reason."
    fake.on("GET", PATH, (200, {"shared": False, "alone": why, "members": [MEMBER]}))
    assert slotwise("members").out.splitlines()[-1] == why


def test_slots_of_a_cluster_are_not_those_of_a_server(slotwise: Run, fake: Any) -> None:
    on_cluster = {**MEMBER, "slots": 0, "cluster": "spark://m:7077"}
    fake.on("GET", PATH, (200, {"shared": True, "alone": None, "members": [on_cluster]}))
    *_, row, last = slotwise("members").out.splitlines()
    assert row.split()[7:9] == ["-", "3"]
    assert last == "The slots are those of spark://m:7077."


def test_as_json_it_is_what_the_server_says(slotwise: Run, fake: Any) -> None:
    answer = {"shared": True, "alone": None, "members": [MEMBER]}
    fake.on("GET", PATH, (200, answer))
    assert json.loads(slotwise("members", "--json").out) == answer

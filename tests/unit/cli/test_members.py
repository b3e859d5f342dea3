"""`slotwise members`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from app.api.examples.cluster import MEMBER

Run = Callable[..., Any]
PATH = "/cluster/members"
OTHER = {**MEMBER, "seat": 2, "state": "LOST", "isArbiter": False}


def test_members_are_a_table(slotwise: Run, fake: Any) -> None:
    fake.on("GET", PATH, (200, {"shared": True, "members": [MEMBER, OTHER]}))
    lines = slotwise("members").out.splitlines()
    assert lines[0].split()[:4] == ["seat", "state", "arbiter", "url"]
    assert lines[-2].split()[:4] == ["1", "ALIVE", "yes", "http://127.0.0.1:8081"]
    assert lines[-1].split()[:3] == ["2", "LOST", MEMBER["url"]]


def test_one_that_is_alone_says_so(slotwise: Run, fake: Any) -> None:
    fake.on("GET", PATH, (200, {"shared": False, "members": [MEMBER]}))
    assert "PostgreSQL" in slotwise("members").out


def test_as_json_it_is_what_the_server_says(slotwise: Run, fake: Any) -> None:
    answer = {"shared": True, "members": [MEMBER]}
    fake.on("GET", PATH, (200, answer))
    assert json.loads(slotwise("members", "--json").out) == answer

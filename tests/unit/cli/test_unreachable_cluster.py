"""What a command says that waits for a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from app.cli.waiting import ClusterWatch

WHY = "The Spark master cannot be asked since 2026-11-23 03:02:00 UTC (refused)."


class Server:
    def __init__(self) -> None:
        self.explanation: dict[str, Any] = {}
        self.asked: list[str] = []

    def get(self, path: str) -> Any:
        self.asked.append(path)
        return self.explanation


def supply(*, unreachable: bool, why: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"supply": {"total": 4, "idle": 0, "outOfSight": unreachable, "why": list(why)}}


def test_it_is_said_once_and_once_that_it_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    server: Any = Server()
    watch = ClusterWatch(server, "a", every_s=0.0)
    for server.explanation in (
        supply(unreachable=False),
        supply(unreachable=True, why=(WHY,)),
        supply(unreachable=True, why=(WHY,)),
    ):
        watch.turn()
    told = f"Waiting on: {WHY} The request is stored; Ctrl-C does not undo it.\n"
    assert capsys.readouterr().err == told
    server.explanation = supply(unreachable=False)
    watch.turn()
    watch.turn()
    assert capsys.readouterr().err == "Waiting on: the cluster is reachable again.\n"
    assert set(server.asked) == {"/jobs/a/explanation"}


def test_it_does_not_ask_all_the_time() -> None:
    server: Any = Server()
    watch = ClusterWatch(server, "a", every_s=3600.0)
    watch.turn()
    assert server.asked == []

"""What a command says that waits for a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from app.cli.waiting import ClusterWatch

WHY = "The Spark master cannot be asked since 2026-11-23 03:02:00 UTC (refused)."


def supply(*, unreachable: bool, why: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"total": 4, "idle": 0, "outOfSight": unreachable, "why": list(why)}


def test_it_is_said_once_and_once_that_it_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    watch = ClusterWatch()
    watch.look(supply(unreachable=False))
    for _ in range(2):
        watch.look(supply(unreachable=True, why=(WHY,)))
    told = f"Waiting on: {WHY} The request is stored; Ctrl-C does not undo it.\n"
    assert capsys.readouterr().err == told
    for _ in range(2):
        watch.look(supply(unreachable=False))
    assert capsys.readouterr().err == "Waiting on: the cluster is reachable again.\n"

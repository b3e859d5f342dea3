"""How long a driver waits for its first executor, and what it says when none has come."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from app.driver import executors
from app.driver.executors import Executors
from app.driver.failures import DriverError
from tests.unit.driver.test_cluster_conf import JOB, kubernetes

STANDALONE = ("spark://m:7077", dict[str, str]())


class Context:
    """What is asked of a SparkContext: its master, and its settings."""

    def __init__(self, master: str, conf: dict[str, str]) -> None:
        self.master = master
        self._conf = conf

    def getConf(self) -> dict[str, str]:
        return self._conf


def waited(monkeypatch: pytest.MonkeyPatch, master: str, conf: dict[str, str]) -> tuple[float, str]:
    """For how many seconds none was waited for in vain, and what was said then."""
    now = 1000.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    # The module's own, not everybody's: threads of other tests may be ending.
    monkeypatch.setattr(executors, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    made: Any = object.__new__(Executors)
    made._context, made.wanted = Context(master, conf), 2
    monkeypatch.setattr(Executors, "active", [])
    with pytest.raises(DriverError) as error:
        made.await_first()
    return now - 1000.0, str(error.value)


def test_on_kubernetes_a_node_has_as_long_to_come_as_the_settings_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for patience_s, expected_s in ((10.0, 60.0), (60.0, 90.0), (300.0, 330.0)):
        cluster = kubernetes(patience_s)
        seconds, said = waited(monkeypatch, cluster.master, dict(cluster.executor_conf(JOB, 1)))
        assert seconds == pytest.approx(expected_s, abs=0.1)
        assert f"within {expected_s:.0f} s" in said
        assert f"`kubectl --namespace jobs describe pods -l slotwise/job={JOB}`" in said


def test_elsewhere_it_is_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds, said = waited(monkeypatch, *STANDALONE)
    assert seconds == pytest.approx(60.0, abs=0.1)
    assert "within 60 s" in said and "The page of the Spark master" in said

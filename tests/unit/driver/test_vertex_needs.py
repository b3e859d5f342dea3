"""What a vertex needs in the environment of its job is named when it is not there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from app.driver import needs
from app.driver.failures import DriverError
from app.driver.needs import require

MADE: Any = SimpleNamespace(name="made")


def lacking(*args: Any, **since: str) -> str:
    with pytest.raises(DriverError) as caught:
        require(MADE, *args, **since)
    assert caught.value.vertex == "made" and not caught.value.recoverable
    return str(caught.value)


def test_nothing_is_said_of_what_is_there() -> None:
    require(MADE, "a sqlite sink", ("json", "csv"))
    require(MADE, "a noop sink", ())


def test_modules_that_are_not_there_are_named() -> None:
    assert lacking("a sqlite sink", ("json", "no_such")) == (
        "Vertex made: a sqlite sink needs no_such, which the environment of the job has not. Add it there."
    )
    assert lacking("a postgresql sink", ("no_such", "nor_this")).endswith(
        "needs no_such and nor_this, which the environment of the job has not. Add them there."
    )


@pytest.mark.parametrize(("version", "fits"), [("4.1.1", False), ("4.2.0", True), ("4.10.1", True)])
def test_a_pyspark_may_be_too_old(monkeypatch: pytest.MonkeyPatch, version: str, fits: bool) -> None:
    monkeypatch.setattr(needs, "pyspark", SimpleNamespace(__version__=version))
    if fits:
        require(MADE, "a source of format rate", ("json",), since="4.2")
        return
    assert lacking("a source of format rate", ("json",), since="4.2") == (
        "Vertex made: a source of format rate needs PySpark 4.2 or newer, and this is PySpark 4.1.1."
    )

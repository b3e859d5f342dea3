"""By what settings a job asks for the page of Spark, and where it cannot be had."""

from __future__ import annotations

import pytest

from app.model.ownsettings import refused_setting
from app.model.sparkui import LOOPBACK, refused_ui, ui_fault


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("spark.ui.enabled", "true", None),
        ("spark.ui.enabled", "False", None),
        ("spark.ui.enabled", "1", "should be true or false, found '1'."),
        ("spark.ui.port", "0", None),
        ("spark.ui.port", "4040", None),
        ("spark.ui.port", "1023", "or a port between 1024 and 65535, found '1023'."),
        ("spark.ui.port", "65536", "or a port between 1024 and 65535"),
        ("spark.ui.port", "-1", "or a port between 1024 and 65535"),
        ("spark.ui.retainedJobs", "x", None),
    ],
)
def test_values_are_looked_at(name: str, value: str, part: str | None) -> None:
    fault = ui_fault(name, value)
    assert fault is None if part is None else fault is not None and part in fault


def test_it_is_had_on_loopback_only() -> None:
    asked, not_asked = (
        [("spark.ui.enabled", "TRUE")],
        [("spark.ui.enabled", "false"), ("spark.ui.port", "4040")],
    )
    assert refused_ui(asked, LOOPBACK) is None and refused_ui(not_asked, "10.0.0.5") is None
    said = refused_ui(asked, "10.0.0.5")
    assert said is not None and "listen on 10.0.0.5 (SPARK_LOCAL_IP)" in said and said.endswith(".")


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("program", [False, True])
def test_nobody_may_end_tasks_by_it(batch: bool, program: bool) -> None:
    for value in ("true", "false"):
        assert refused_setting("spark.ui.enabled", value, batch=batch, program=program) is None
    assert refused_setting("spark.ui.killEnabled", "false", batch=batch, program=program) is None
    said = refused_setting("spark.ui.killEnabled", "true", batch=batch, program=program)
    assert said is not None and "could end tasks" in said

"""Settings of Spark's page that a program makes in its code."""

from __future__ import annotations

import pytest

from app.driver.failures import DriverError
from app.driver.program.takeover import settings_of


@pytest.mark.parametrize("batch", [False, True])
def test_those_of_the_page_are_checked_as_in_the_config_of_a_job(batch: bool) -> None:
    fine = {"spark.ui.enabled": True, "spark.ui.port": 4040}
    assert settings_of(fine, {}, {}, batch=batch) == {"spark.ui.enabled": "true", "spark.ui.port": "4040"}
    for name, value in (("spark.ui.enabled", " true"), ("spark.ui.port", 80), ("spark.ui.port", "x")):
        with pytest.raises(
            DriverError, match=rf"sets {name} to {value}, which is not possible: it should be"
        ):
            settings_of({name: value}, {}, {}, batch=batch)

"""Settings of Spark's page that a program makes in its code."""

from __future__ import annotations

import pytest

from app.driver.failures import DriverError
from app.driver.program.takeover import settings_of
from app.driver.session import local_master


@pytest.mark.parametrize("batch", [False, True])
def test_those_of_the_page_are_checked_as_in_the_config_of_a_job(batch: bool) -> None:
    fine = {"spark.ui.enabled": True, "spark.ui.port": 4040}
    assert settings_of(fine, {}, {}, batch=batch) == {"spark.ui.enabled": "true", "spark.ui.port": "4040"}
    for name, value in (("spark.ui.enabled", " true"), ("spark.ui.port", 80), ("spark.ui.port", "x")):
        with pytest.raises(
            DriverError, match=rf"sets {name} to {value}, which is not possible: it should be"
        ):
            settings_of({name: value}, {}, {}, batch=batch)


@pytest.mark.parametrize("times", [0, -1, 1.5, "two", " 3"])
def test_how_often_a_task_may_fail_is_a_whole_number(times: object) -> None:
    told = (
        rf"spark.task.maxFailures to {times}, which is not possible: it should be how often a task may fail"
    )
    with pytest.raises(DriverError, match=told):
        settings_of({"spark.task.maxFailures": times}, {}, {})
    assert settings_of({"spark.task.maxFailures": 3}, {}, {}) == {"spark.task.maxFailures": "3"}


def test_on_one_host_spark_reads_it_in_the_master_alone() -> None:
    conf = {"spark.task.maxFailures": "3"}
    assert local_master("local[8]", conf) == "local[8,3]"
    assert local_master("local[8]", {}) == "local[8]"
    assert local_master("spark://host:7077", conf) == "spark://host:7077"
    # Of a job that an earlier version took.
    assert local_master("local[8]", {"spark.task.maxFailures": "x"}) == "local[8]"

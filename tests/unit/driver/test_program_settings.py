"""Settings that a program makes in its code."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from app.driver.failures import DriverError
from app.driver.program.facts import checkpoint_of
from app.driver.program.settings import put_back, session_conf, settings_of
from app.driver.session import local_master, unfit_setting


@pytest.mark.parametrize("batch", [False, True])
def test_those_of_the_page_are_checked_as_in_the_config_of_a_job(batch: bool) -> None:
    fine = {"spark.ui.enabled": True, "spark.ui.port": 4040}
    assert settings_of(fine, {}, {}, batch=batch) == {"spark.ui.enabled": "true", "spark.ui.port": "4040"}
    for name, value in (("spark.ui.enabled", " true"), ("spark.ui.port", 80), ("spark.ui.port", "x")):
        with pytest.raises(
            DriverError, match=rf"sets {name} to {value}, which is not possible: it should be"
        ):
            settings_of({name: value}, {}, {}, batch=batch)


def test_what_changes_nothing_is_passed_over_and_said(caplog: pytest.LogCaptureFixture) -> None:
    harmless = {
        "spark.master": "local[*]",
        "spark.driver.cores": 2,
        "spark.submit.deployMode": "client",
        "spark.sql.adaptive.enabled": True,
    }
    assert settings_of({**harmless, "mine": 1}, {}, {}) == {"mine": "1"}
    assert [name in caplog.text for name in harmless] == [True] * 4
    assert settings_of({"spark.sql.adaptive.enabled": False}, {}, {}, batch=True) == {
        "spark.sql.adaptive.enabled": "false"
    }


def test_all_that_is_refused_is_named_with_what_takes_its_place() -> None:
    asked = {"spark.master": "yarn", "mine": 1, "spark.driver.memory": "2g", "spark.jars.packages": "a:b:1"}
    with pytest.raises(DriverError) as refused:
        settings_of(asked, {}, {})
    said = str(refused.value)
    assert said.startswith("the program sets what is not possible. spark.master to yarn: Slotwise decides")
    assert "--conf spark.driver.memory=2g; spark.jars.packages to a:b:1: list the libraries" in said
    assert "mine" not in said and said.endswith(".")


def test_what_every_query_needs_is_put_back_where_that_is_of_no_harm() -> None:
    rules = "org.apache.spark.sql.catalyst.optimizer.CollapseRepartition"
    conf = {"spark.sql.adaptive.enabled": "true", "spark.sql.optimizer.excludedRules": rules}

    class Conf(dict[str, str]):
        def set(self, name: str, value: str) -> None:
            self[name] = value

    session: Any = SimpleNamespace(conf=Conf(conf))
    assert put_back(session) is None
    assert session.conf["spark.sql.adaptive.enabled"] == "false"
    session.conf["spark.sql.optimizer.excludedRules"] = ""
    assert str(put_back(session)).startswith(
        "the program has set spark.sql.optimizer.excludedRules to , which"
    )


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


@pytest.mark.parametrize("batch", [False, True])
def test_a_program_has_its_own_name_and_that_of_plain_python_if_it_gives_none(batch: bool) -> None:
    own = settings_of({"spark.app.name": "mine"}, {"spark.app.name": "pyspark-shell"}, {}, batch=batch)
    assert session_conf(own, {}, batch=batch)["spark.app.name"] == "mine"
    assert session_conf({}, {}, batch=batch)["spark.app.name"] == "pyspark-shell"


def test_what_only_a_new_context_could_have_does_not_fit_one_that_was_started_without() -> None:
    of_sessions = {"spark.app.name": "a", "spark.sql.warehouse.dir": "/w", "spark.hadoop.x": "1", "mine": "1"}
    kryo = {"spark.serializer": "org.apache.spark.serializer.KryoSerializer"}
    assert unfit_setting({**of_sessions, "spark.driver.memory": "2g"}, {}) is None
    assert unfit_setting({**of_sessions, **kryo}, {}) == "spark.serializer"
    assert unfit_setting({**of_sessions, **kryo}, kryo) is None
    assert unfit_setting({"spark.serializer": "other"}, kryo) == "spark.serializer"


def test_a_checkpoint_that_would_be_another_in_each_attempt_is_refused() -> None:
    path = lambda parent, name: SimpleNamespace(toString=lambda: f"{parent}/{name}")  # noqa: E731
    hadoop = SimpleNamespace(fs=SimpleNamespace(Path=path))
    session: Any = SimpleNamespace(
        conf={"spark.sql.streaming.checkpointLocation": "/c/local-17"},
        sparkContext=SimpleNamespace(applicationId="local-17"),
        _jvm=SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=hadoop))),
    )
    for option, name in (("/c/local-17/counts", None), ("", "counts")):
        facts: Any = SimpleNamespace(options={"checkpointlocation": option}, query_name=name)
        with pytest.raises(
            DriverError, match=r"checkpoint /c/local-17/counts has .* use spark.sparkContext.appName"
        ):
            checkpoint_of(session, facts)
    assert (
        checkpoint_of(session, SimpleNamespace(options={"checkpointlocation": "/c/x"}, query_name="n"))
        == "/c/x"
    )  # type: ignore[arg-type]
    assert checkpoint_of(session, SimpleNamespace(options={}, query_name=None)) is None  # type: ignore[arg-type]

"""The working directory of a job: all that a program finds by a relative path lies in one that no other job has."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.deployment import Deployment, deployed, is_alive, wait_for
from tests.acceptance.plain_run import plain
from tests.acceptance.programs import PROGRAMS, cli, run_cli, submit

pytestmark = pytest.mark.timeout(900)

SCRIPT = PROGRAMS / "at_home.py"
OWN_JVM = ("--conf", "spark.driver.extraJavaOptions=-Dmine=1")
"""A job with it never gets a warm driver."""
LOG4J = "spark.driver.extraJavaOptions=-Dlog4j2.configurationFile=file:mine.properties"


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A server without a locale, whose data directory has a name that cannot be written without one."""
    directory = tmp_path_factory.mktemp("home") / "Größe und Maß"
    directory.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("LANG", "LC_CTYPE"):
            patch.delenv(name, raising=False)
        patch.setenv("LC_ALL", "C")
        with deployed(directory, warm_drivers=1) as made:
            made.start(with_points=False)
            yield made


def home_of(deployment: Deployment) -> Path:
    return Path(deployment.job()["workingDirectory"])


def seen(home: Path, number: int = 0) -> dict[str, Any]:
    """What the run of that number saw, its directory apart."""
    file = home / f"seen-{number}.json"
    wait_for(f"{file} is there", file.exists)
    told = {name: told_as(value, home) for name, value in json.loads(file.read_text("utf-8")).items()}
    return dict(told)


def told_as(value: Any, home: Path) -> Any:
    # Spark writes the location of a table, and of it alone, as a URI.
    return value.replace("%20", " ").replace(str(home), "HOME") if isinstance(value, str) else value


def end(deployment: Deployment) -> None:
    pid = int(deployment.job()["driverPid"])
    cli(deployment, "cancel", deployment.job_id)
    wait_for("its driver has ended", lambda: not is_alive(pid))


def await_commit(home: Path, batch: int) -> None:
    wait_for(f"batch {batch} is committed", (home / "checkpoint/commits" / str(batch)).exists)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What it sees as `python at_home.py`."""
    script = tmp_path_factory.mktemp("plain") / SCRIPT.name
    script.write_bytes(SCRIPT.read_bytes())
    with plain(script, [], script.with_name("log")):
        return seen(script.parent)


@pytest.mark.long
def test_a_program_is_at_home_in_each_attempt_and_no_other_is_there(
    deployment: Deployment, alone: dict[str, Any]
) -> None:
    wait_for("a driver is warm", lambda: deployment.log_file.read_text("utf-8").count("warm driver ready"))
    submit(deployment, SCRIPT, [], "--name", "first")
    home = home_of(deployment)
    assert home == deployment.data_dir / "jobs" / deployment.job_id / "home"
    assert seen(home) == alone
    await_commit(home, 0)
    first = deployment.job_id

    os.killpg(int(deployment.job()["driverPid"]), signal.SIGKILL)
    assert seen(home, 1) == {**alone, "table": 1, "checkpoint": True}
    await_commit(home, 1)
    assert f"working directory {home}" in " ".join(cli(deployment, "show", first).split())
    end(deployment)

    for name, options in (("second", ()), ("third", OWN_JVM)):
        submit(deployment, SCRIPT, [], "--name", name, *options)
        assert seen(home_of(deployment)) == alone
        await_commit(home_of(deployment), 0)
        end(deployment)
    assert len(os.listdir(home / "checkpoint/commits")) >= 2
    assert not [one for one in ("input", "output", "checkpoint", "metastore_db", "spark-warehouse")
                if (deployment.data_dir / "run" / one).exists()]  # fmt: skip
    assert run_cli(deployment, "forget", first).returncode == 0
    wait_for("its files are gone", lambda: not home.exists())


def test_the_configuration_of_log4j_may_be_one_of_the_files_of_a_job(deployment: Deployment) -> None:
    options = ("--name", "logs", "--file", str(PROGRAMS / "mine.properties"), "--conf", LOG4J)
    submit(deployment, PROGRAMS / "by_log4j.py", [], *options)
    wait_for("its end", lambda: deployment.job()["state"] == "FINISHED")
    assert "WARN of mine: by the first" in cli(deployment, "logs", "logs").splitlines()

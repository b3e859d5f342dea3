"""Flink's own command line, unmodified, against a server with a real job: list, savepoint, stop, cancel.

It is that of apache-flink-libraries on PyPI (330 MB), which is unpacked beside the project's environment.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.acceptance.deployment import ROOT, Deployment, counting, deployed, wait_for

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]

PACKAGE = "apache-flink-libraries==2.3.0"
FRONTEND = "org.apache.flink.client.cli.CliFrontend"
OPENS = ("java.lang", "java.net", "java.util", "java.util.concurrent", "java.time")
DOWNLOAD_S, COMMAND_S = 600, 180
JOB_LINE = r"[0-9.]+ [0-9:]+ : ([0-9a-f]{32}) : (\S+) \((\w+)\)"


@dataclass(frozen=True)
class FlinkCli:
    """``flink`` without its shell script, which the package does not have."""

    libraries: Path
    conf: Path

    def run(self, *arguments: str) -> str:
        """What it printed; it has to succeed."""
        opens = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENS]
        done = subprocess.run(
            ["java", *opens, "-Xmx256m", "-cp", f"{self.libraries}/*", FRONTEND, *arguments],
            env={**os.environ, "FLINK_CONF_DIR": str(self.conf)},
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        print(f"$ flink {' '.join(arguments)}\n{done.stdout}{done.stderr}")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def jobs(self) -> list[tuple[str, ...]]:
        """Id, name and status of each job that `flink list -a` shows."""
        return [found.groups() for found in re.finditer(JOB_LINE, self.run("list", "-a"))]


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("flink")
    # Where `.ci/setup` puts it if the machine has none.
    uv = shutil.which("uv", path=f"{os.environ['PATH']}{os.pathsep}{ROOT / '.uv/bin'}")
    if uv is None:
        pytest.skip(f"uv, which gets {PACKAGE}, is neither on the PATH nor in .uv/bin.")
    done = subprocess.run(
        [uv, "pip", "install", "-q", "--no-deps", "--no-config", "--target", str(directory), PACKAGE],
        capture_output=True,
        text=True,
        timeout=DOWNLOAD_S,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"{PACKAGE} cannot be had: {done.stderr.strip()[-300:]}")
    return directory / "pyflink" / "lib"


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("cli"), warm_drivers=1) as made:
        made.start(with_points=False)
        yield made


@pytest.fixture(scope="module")
def flink(libraries: Path, deployment: Deployment, tmp_path_factory: pytest.TempPathFactory) -> FlinkCli:
    conf = tmp_path_factory.mktemp("conf")
    address = urlsplit((deployment.data_dir / "address").read_text(encoding="utf-8").strip())
    lines = (f"rest.address: {address.hostname}", f"rest.port: {address.port}", "execution.target: remote")
    (conf / "config.yaml").write_text("\n".join(lines) + "\n")
    return FlinkCli(libraries, conf)


def test_jobs_are_listed_saved_stopped_and_canceled(flink: FlinkCli, deployment: Deployment) -> None:
    deployment.submit(counting(deployment.directory))
    stopped = deployment.job_id
    deployment.await_settled()
    assert flink.jobs() == [(stopped, "counting", "RUNNING")]

    said = flink.run("savepoint", stopped)
    place = Path(re.search(r"Savepoint completed. Path: (\S+)", said)[1])  # type: ignore[index]
    assert list(place.glob("*/commits/*")), "it is where the job's checkpoints are"
    assert deployment.await_progress() > 0, "the job runs on"

    said = flink.run("stop", stopped)
    assert f"Savepoint completed. Path: {place}" in said
    deployment.await_status("FINISHED")
    rows = deployment.rows()
    assert rows == deployment.committed_rows() > 0

    other = deployment.directory / "other"
    other.mkdir()
    deployment.submit(counting(other))
    canceled = deployment.job_id
    wait_for("the job runs", lambda: deployment.job()["state"] == "RUNNING")
    assert f"Cancelled job {canceled}." in flink.run("cancel", canceled)
    deployment.await_status("CANCELED")
    assert sorted(flink.jobs()) == sorted(
        [(stopped, "counting", "FINISHED"), (canceled, "counting", "CANCELED")]
    )

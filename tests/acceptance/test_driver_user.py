"""Drivers as another user: a job works through all that can happen to it, and its code sees nothing of the server's.

Needs root, a user `nobody`, and a checkout that this user can read. A Python that it cannot run is copied to a place
where it can.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.acceptance.deployment import ROOT, Deployment, counting, is_alive, wait_for

pytestmark = pytest.mark.timeout(900)

USER = "nobody"
# Runs in the driver, with the rights of the driver: in Python, and in its JVM.
SPY = """
import json, os
from pathlib import Path

def probe(counts):
    told = {}
    for path in json.loads(Path("ASKED").read_text()):
        try:
            told[path] = "listed" if os.path.isdir(path) and os.listdir(path) is not None else "read"
            if told[path] == "read":
                open(path, "rb").close()
        except OSError as error:
            told[path] = type(error).__name__
        try:
            counts.sparkSession.read.text(path).collect()
            told["jvm " + path] = "read"
        except Exception as error:
            told["jvm " + path] = "Permission denied" if "ermission denied" in str(error) else str(error)[:300]
    told["user"] = [os.getuid(), os.getgid(), os.environ["HOME"], "SLOTWISE_TOKEN_FILE" in os.environ]
    Path("TOLD").write_text(json.dumps(told))
    return counts
"""
# Only these of a Python's library are copied.
LEFT_OUT = ("site-packages", "test", "idlelib", "tkinter", "config-*", "__pycache__")


def may(program: list[str], environment: dict[str, str]) -> bool:
    """Whether the user can run ``program``."""
    account = pwd.getpwnam(USER)
    try:
        done = subprocess.run(
            program, user=account.pw_uid, group=account.pw_gid, extra_groups=[], cwd="/", env=environment,
            capture_output=True,
        )  # fmt: skip
    except OSError:
        return False
    return done.returncode == 0


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A directory that everyone can enter; pytest's own are private."""
    directory = Path(tempfile.mkdtemp(prefix="slotwise-user-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def python(place: Path) -> tuple[str, dict[str, str]]:
    """A Python that the user can run, and what its environment needs. Skips where that cannot be had."""
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: drivers as another user need a server that is root, and so does this test")
    try:
        pwd.getpwnam(USER)
    except KeyError:
        pytest.skip(f"NOT TESTED: drivers as another user, for there is no user {USER}")
    probe = "import app.driver, pyspark, psutil"
    if may([sys.executable, "-c", probe], dict(os.environ)):
        return sys.executable, {}
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    base, copy = Path(sys.base_prefix), place / "python"
    shutil.copytree(base / "lib" / name, copy / "lib" / name, ignore=shutil.ignore_patterns(*LEFT_OUT))
    for library in (base / "lib").glob("libpython*"):
        shutil.copy(library, copy / "lib" / library.name, follow_symlinks=False)
    (copy / "bin").mkdir()
    shutil.copy(Path(sys.executable).resolve(), copy / "bin" / name)
    installed = [path for path in sys.path if path.endswith("site-packages")]
    environment = {
        "LD_LIBRARY_PATH": str(copy / "lib"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *installed]),
    }
    program = str(copy / "bin" / name)
    if not may([program, "-c", probe], {**os.environ, **environment}):
        pytest.skip(f"NOT TESTED: drivers as another user, for {USER} cannot read this checkout")
    return program, environment


@dataclass
class OtherUser(Deployment):
    """A deployment of which the drivers run as `USER`."""

    program: str = ""
    more: dict[str, str] = field(default_factory=dict)

    def command(self, *, with_points: bool) -> list[str]:
        return [self.program, *super().command(with_points=with_points)[1:]]

    def environment(self) -> dict[str, str]:
        return {**super().environment(), **self.more}


@pytest.fixture(scope="module")
def deployment(
    place: Path, python: tuple[str, dict[str, str]], class_data_archive: Path
) -> Iterator[OtherUser]:
    token_file = place / "tokens"
    # Spark does not open an empty file.
    token_file.write_text(f"ops:{'0' * 64}\n")
    token_file.chmod(0o600)
    # Where that user can read it.
    cache = place / "cache"
    cache.mkdir()
    shutil.copy(class_data_archive, cache)
    settings = {"RUN_DRIVERS_AS": USER, "CACHE_DIR": str(cache)}
    made = OtherUser(place, warm_drivers=1, program=python[0], more=python[1], settings=settings)
    try:
        yield made
    finally:
        made.close()


def user_of(pid: int) -> tuple[int, int]:
    process = psutil.Process(pid)
    return process.uids().real, process.gids().real


def submit_spy(deployment: OtherUser, place: Path) -> Path:
    """Submit a job whose function looks around; the file with what it saw."""
    account = pwd.getpwnam(USER)
    out = place / "out"
    out.mkdir()
    os.chown(out, account.pw_uid, account.pw_gid)
    asked, told = place / "asked.json", out / "told.json"
    data = deployment.data_dir
    hidden = [
        place / "tokens",
        data / "slotwise.db",
        data / "slotwise.db-wal",
        data / "server.lock",
        data,
        data / "jobs",
    ]
    asked.write_text(json.dumps([str(path) for path in (*hidden, asked)]))
    spy = place / "probe.py"
    spy.write_text(SPY.replace("ASKED", str(asked)).replace("TOLD", str(told)))
    deployment.submit(counting(out, probe=True), spy)
    return told


def check_what_was_seen(told: dict[str, Any], place: Path, data: Path) -> None:
    account = pwd.getpwnam(USER)
    assert told.pop("user") == [account.pw_uid, account.pw_gid, account.pw_dir, False]
    readable = str(place / "asked.json")
    assert (told.pop(readable), told.pop(f"jvm {readable}")) == ("read", "read")
    assert str(data / "slotwise.db") in told
    assert set(told.values()) <= {"PermissionError", "Permission denied"}, told


def change(deployment: OtherUser, vertex: str, parallelism: int) -> None:
    """Have another parallelism of one vertex in force."""
    deployment.await_settled()
    _, bounds = deployment.requirements()
    answer = deployment.put({**bounds, vertex: (1, parallelism)}, f"{vertex}-{parallelism}")
    assert answer.is_success, answer.text
    deployment.await_settled()


def test_a_job_lives_as_ever_and_sees_nothing_of_the_server(deployment: OtherUser, place: Path) -> None:
    deployment.start(with_points=False)
    told = submit_spy(deployment, place)
    account = pwd.getpwnam(USER)
    pid = int(deployment.job()["driverPid"])
    assert user_of(pid) == (account.pw_uid, account.pw_gid)
    assert {user_of(child.pid) for child in psutil.Process(pid).children(recursive=True)} == {user_of(pid)}
    check_what_was_seen(json.loads(told.read_text()), place, deployment.data_dir)

    for vertex in ("counts", "plain"):
        change(deployment, vertex, 3)
        deployment.await_progress()

    os.kill(pid, signal.SIGKILL)
    wait_for("the driver is dead", lambda: not is_alive(pid))
    deployment.await_progress()
    deployment.await_settled()
    second = int(deployment.job()["driverPid"])
    assert second != pid and user_of(second) == (account.pw_uid, account.pw_gid)

    # A server that is killed and comes back adopts the driver, which finds its new address.
    deployment.kill_server()
    # Warm drivers have been used twice.
    deployment.warm_drivers = 0
    deployment.start(with_points=False)
    deployment.await_progress()
    adopted = int(deployment.job()["driverPid"])
    assert adopted == second, deployment.why(f"run by {adopted} and not by {second}")
    change(deployment, "counts", 4)
    deployment.stop()
    deployment.check_ends()
    assert deployment.rows() == deployment.committed_rows() > 0
    # The server alone can read the logs, and shows them.
    attempts = deployment.get(f"/jobs/{deployment.job_id}/attempts")["attempts"]
    killed = next(each for each in attempts if each["driverPid"] == pid)
    assert killed["ending"] == "FAILED" and "was killed by signal 9" in killed["message"], killed
    log = deployment.call("GET", f"/jobs/{deployment.job_id}/attempts/{attempts[0]['attempt']}/logs")
    assert (log.status_code, log.headers["X-Slotwise-Complete"]) == (200, "true"), log.text
    assert deployment.terminate_server() == 0


def refusal(deployment: OtherUser) -> str:
    """What a server says that does not start."""
    done = subprocess.run(
        deployment.command(with_points=False),
        env=deployment.environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_server_does_not_start_if_that_user_could_read_its_tokens(
    deployment: OtherUser, place: Path
) -> None:
    tokens = place / "tokens"
    tokens.write_text("ops:sha256:" + "0" * 64)
    deployment.settings["TOKEN_FILE"] = str(tokens)
    os.chown(tokens, 0, pwd.getpwnam(USER).pw_gid)
    tokens.chmod(0o640)
    assert f"run_drivers_as: the user {USER} can read {tokens}" in refusal(deployment)


def test_a_server_does_not_start_if_that_user_could_not_reach_the_files_of_jobs(
    deployment: OtherUser, place: Path
) -> None:
    deployment.settings.pop("TOKEN_FILE", None)
    hidden = place / "hidden"
    hidden.mkdir(mode=0o700)
    deployment.data_dir = hidden / "data"
    assert f"run_drivers_as: the user {USER} cannot enter {hidden}/data/jobs" in refusal(deployment)

"""Drivers as another user: whom the setting refuses, and what is opened to the user and what is not."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app import filelocks
from app.cluster import processes
from app.cluster.driveruser import DriverUser, DriverUserError
from app.cluster.ports import DriverLaunchError, DriverRef
from app.settings import SettingsError, load_settings
from app.worker.housekeeping.directories import _open_to, driver_user

UID = GID = 54321
USER = DriverUser("somebody", UID, GID, (GID,), "/nonexistent", 0o022)
SLEEP = shutil.which("sleep") or "sleep"
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: only root gives files to another user")


@pytest.fixture(autouse=True)
def mask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def refused(tmp_path: Path, **settings: Any) -> str:
    with pytest.raises(DriverUserError) as error:
        driver_user(
            load_settings(data_dir=tmp_path, **settings), tmp_path / "run", tmp_path / "cache", "java"
        )
    return str(error.value)


def test_without_root_the_setting_is_refused_with_another_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    sentence = refused(tmp_path, run_drivers_as="nobody")
    assert "only root can start processes of another user" in sentence and "User=" in sentence


@pytest.mark.parametrize("name", ["no-such-user", "4294967294", "99999999999999999999"])
def test_a_user_that_does_not_exist_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert refused(tmp_path, run_drivers_as=name) == f"run_drivers_as: there is no user {name} on this host."


@pytest.mark.parametrize("name", ["root", "0"])
def test_root_is_no_other_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "is root, or in its group" in refused(tmp_path, run_drivers_as=name)
    assert os.umask(0o022) == 0o022, "nothing has changed"


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (
            {
                "cluster_kind": "spark-standalone",
                "cluster_master": "spark://127.0.0.1:7077",
                "cluster_webui": "http://127.0.0.1:8080",
            },
            "run_drivers_as: is for cluster_kind embedded, and cluster_kind is spark-standalone.",
        ),
        ({"results_url": "/results"}, "results_url: with run_drivers_as results lie among the files of jobs"),
    ],
    ids=["cluster", "results"],
)
def test_what_does_not_go_together_is_refused_with_the_settings(other: Any, sentence: str) -> None:
    """So that it is told by whatever reads them, such as `slotwise doctor`."""
    with pytest.raises(SettingsError, match=re.escape(sentence)):
        load_settings(run_drivers_as="nobody", **other)
    assert load_settings(run_drivers_as="nobody", results_url="hdfs://namenode/r").run_drivers_as == "nobody"


def test_what_the_server_makes_is_its_own_and_drivers_keep_the_umask_that_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(DriverUser, "let_through", lambda *_: None)
    monkeypatch.setattr(DriverUser, "check", lambda *_, **__: None)
    os.umask(0o027)
    DriverUser.named("nobody")
    assert os.umask(0o027) == 0o027, "to look a user up changes nothing"
    settings = load_settings(data_dir=tmp_path, run_drivers_as="nobody")
    user = driver_user(settings, tmp_path / "run", tmp_path / "cache", "java")
    assert user is not None and user.popen()["umask"] == 0o027
    assert os.umask(0o027) == 0o077


def seen(path: Path) -> tuple[int, int, int]:
    found = path.lstat()
    return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)


@AS_ROOT
def test_the_data_directory_of_a_server_is_closed_but_for_the_way_to_the_files_of_jobs(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    (data / "run").mkdir(parents=True)
    data.chmod(0o700)
    for name in ("slotwise.db", "slotwise.db-wal", "run/driver-1.log"):
        (data / name).touch()
    _open_to(USER, data, data / "jobs", data / "run")
    assert {seen(data / name) for name in ("slotwise.db", "slotwise.db-wal", "run/driver-1.log")} == {
        (0, 0, 0o600)
    }
    assert {seen(data), seen(data / "jobs")} == {(0, GID, 0o710)}
    # Whoever may enter already is not the user alone: that is as its owner wants it.
    assert seen(data / "run") == (0, 0, 0o755)


@AS_ROOT
def test_a_driver_is_given_what_it_works_with_and_nothing_else(tmp_path: Path) -> None:
    os.umask(0o077)
    job = tmp_path / "jobs" / "1"
    assignment = job / "attempt-2" / "spec-1.json"
    for file in (
        assignment,
        job / "artifacts" / "f.py",
        job / "checkpoint" / "1" / "offsets" / "0",
        job / "other",
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    for _ in range(2):
        USER.open_job(assignment)
        assert seen(job) == (0, GID, 0o710)
        assert seen(job / "artifacts") == (0, GID, 0o750)
        given = ("checkpoint", "checkpoint/1", "checkpoint/1/offsets", "results", "attempt-2")
        assert {seen(job / name) for name in given} == {(UID, GID, 0o700)}
        for name in ("artifacts/f.py", "attempt-2/spec-1.json", "checkpoint/1/offsets/0"):
            assert seen(job / name) == (UID, GID, 0o600)
        assert seen(job / "other") == (0, 0, 0o600)
    lock_file = tmp_path / "run" / "driver-1.lock"
    lock_file.parent.mkdir()
    USER.open_run(lock_file, lock_file.with_suffix(".scratch"))
    assert [seen(path) for path in (lock_file.parent, lock_file, lock_file.with_suffix(".scratch"))] == [
        (0, GID, 0o710), (UID, GID, 0o600), (UID, GID, 0o700),
    ]  # fmt: skip


@AS_ROOT
def test_what_a_driver_puts_in_the_way_leads_nowhere(tmp_path: Path) -> None:
    """A link in its own directory, where root gives it the next assignment."""
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    attempt = tmp_path / "jobs" / "1" / "attempt-2"
    attempt.mkdir(parents=True)
    (attempt / "spec-1.json").symlink_to(secret)
    with pytest.raises(OSError, match="symbolic links"):
        USER.open_job(attempt / "spec-1.json")
    (attempt / "spec-2.json").hardlink_to(secret)
    USER.give(attempt / "spec-2.json")
    os.mkfifo(attempt / "spec-3.json")
    USER.give(attempt / "spec-3.json")
    (attempt.parent / "checkpoint").mkdir()
    (attempt.parent / "checkpoint" / "link").symlink_to(secret)
    USER.give_directory(attempt.parent / "checkpoint")
    assert seen(secret) == (0, 0, 0o600)


@AS_ROOT
def test_what_another_group_was_allowed_is_not_for_the_group_of_the_user(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, 0, 10)
    data.chmod(0o770)
    USER.let_through(data)
    assert seen(data) == (0, GID, 0o710)


@AS_ROOT
def test_a_directory_of_a_job_that_is_the_users_is_refused(tmp_path: Path) -> None:
    """As of an earlier server that ran as that user."""
    job = tmp_path / "jobs" / "1"
    (job / "attempt-1").mkdir(parents=True)
    (job / "attempt-1" / "spec-1.json").touch()
    os.chown(job, UID, GID)
    with pytest.raises(PermissionError, match=f"It belongs to somebody, and should to root: '{job}'"):
        USER.open_job(job / "attempt-1" / "spec-1.json")


@AS_ROOT
def test_a_directory_of_the_servers_that_the_user_can_write_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The eyes of this test's user, who can write to each: no other need be able to run its Python.
    monkeypatch.setattr(DriverUser, "popen", lambda _: {})
    jobs = tmp_path / "elsewhere"
    sentence = refused(tmp_path, run_drivers_as="nobody", jobs_dir=jobs)
    assert all(f"can write to {each}" in sentence for each in (tmp_path, jobs, tmp_path / "run"))


@AS_ROOT
async def test_a_foreign_group_of_processes_is_not_killed_for_a_lock_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of a driver that is gone can be that of another group by now."""
    lock_file = tmp_path / "driver-1.lock"
    held = filelocks.lock(lock_file)
    assert held is not None
    monkeypatch.setattr(processes, "_KILL_DEADLINE_S", 0.2)
    ours = subprocess.Popen([SLEEP, "60"], process_group=0)  # noqa: ASYNC220
    theirs = subprocess.Popen(  # noqa: ASYNC220
        [SLEEP, "60"], process_group=ours.pid, user=UID, group=GID, extra_groups=[]
    )
    try:
        driver = processes.LocalDriver(DriverRef("driver-1", ours.pid, 1.0, str(lock_file)), None, USER)
        with pytest.raises(DriverLaunchError, match="survives"):
            await driver.kill()
        driver.detach()
        assert theirs.wait(10) == -9 and ours.poll() is None
    finally:
        os.close(held)
        for each in (theirs, ours):
            each.kill()
            each.wait()

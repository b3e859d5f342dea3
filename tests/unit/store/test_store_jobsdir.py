"""The files of jobs are where they were, or the server does not start."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from app.store.errors import StoreUnavailable
from app.store.jobsdir import MARK_NAME, NOTE_NAME, claim_jobs_dir


@pytest.fixture
def data(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.mkdir()
    return made


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    return tmp_path / "shared" / "jobs"


def refused(data: Path, jobs: Path, home: str = "home-1") -> str:
    with pytest.raises(StoreUnavailable) as error:
        claim_jobs_dir(data, home, jobs)
    assert str(error.value).startswith("jobs_dir: ")
    return str(error.value)


def test_a_place_is_made_for_this_user_only_and_found_again(data: Path, shared: Path) -> None:
    for _ in range(2):
        claim_jobs_dir(data, "home-1", shared)
    assert shared.stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in (*data.iterdir(), *shared.iterdir())) == [MARK_NAME, NOTE_NAME]


def test_a_file_system_that_is_not_mounted_stops_the_server(data: Path, shared: Path) -> None:
    claim_jobs_dir(data, "home-1", shared)
    shutil.rmtree(shared)
    for _ in range(2):
        assert "Is its file system mounted?" in refused(data, shared)
        shared.mkdir(exist_ok=True)
    # As the sentence says: they are lost.
    (data / NOTE_NAME).unlink()
    claim_jobs_dir(data, "home-1", shared)


def test_a_setting_that_has_changed_stops_the_server(data: Path, shared: Path) -> None:
    claim_jobs_dir(data, "home-1", shared)
    for other in (data / "jobs", shared.with_name("other")):
        assert f"lie in {shared}, not in {other}" in refused(data, other)
        assert not other.exists()
    # As the sentence says: they have been moved.
    moved = shared.rename(shared.with_name("other"))
    (data / NOTE_NAME).write_text(f"{moved}\n")
    claim_jobs_dir(data, "home-1", moved)


def test_jobs_of_before_the_note_are_not_left_behind(data: Path, shared: Path) -> None:
    (data / "jobs" / "0123").mkdir(parents=True)
    assert f"lie in {data / 'jobs'}, not in {shared}" in refused(data, shared)
    claim_jobs_dir(data, "home-1", data / "jobs")
    assert (data / "jobs" / MARK_NAME).exists()


def test_a_data_directory_may_be_moved_with_its_jobs(data: Path) -> None:
    claim_jobs_dir(data, "home-1", data / "jobs")
    moved = data.rename(data.with_name("moved"))
    claim_jobs_dir(moved, "home-1", moved / "jobs")
    assert "not in" in refused(moved, data / "jobs")


def test_two_data_directories_do_not_share_a_place(tmp_path: Path, data: Path, shared: Path) -> None:
    claim_jobs_dir(data, "home-1", shared)
    second = tmp_path / "second"
    second.mkdir()
    assert "of another data directory's jobs" in refused(second, shared, "home-2")
    assert list(second.iterdir()) == []


def test_a_start_that_was_cut_off_is_gone_on_with(data: Path, shared: Path) -> None:
    shared.mkdir(parents=True)
    (shared / MARK_NAME).write_text("home-1\n")
    claim_jobs_dir(data, "home-1", shared)
    assert (data / NOTE_NAME).read_text() == f"{shared}\n"
    # A crash of the host may leave an empty file behind.
    (data / NOTE_NAME).write_text("")
    claim_jobs_dir(data, "home-1", shared)
    assert (data / NOTE_NAME).read_text() == f"{shared}\n"


def test_what_cannot_be_written_is_said_to_be_so(data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "cannot be used: Not a directory" in refused(data, tmp_path / "file" / "jobs")

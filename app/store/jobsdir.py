"""The directory for the files of jobs: in the data directory, or on a file system that the hosts of a cluster
share.

If a server found the directory empty, because its file system is not mounted or the setting has changed, every
job would begin without its checkpoint. So the directory has a mark with the name of the data directory, the
data directory has a note of the path, and a server does not start if the two do not match.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from app.durablefiles import make_private, write_once
from app.store.errors import StoreUnavailable

JOBS_NAME = "jobs"
NOTE_NAME = "jobs-dir"
MARK_NAME = ".home-id"


def claim_jobs_dir(data_dir: Path, home: str, jobs_dir: Path) -> None:
    """Make ``jobs_dir`` the place of the jobs of ``data_dir``, whose name is ``home``, or see that it is so.

    Raises:
        StoreUnavailable: their files are somewhere else, or it is another data directory's, or it cannot be used.
    """
    try:
        _claim(data_dir, home, jobs_dir)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise StoreUnavailable(f"jobs_dir: the directory {jobs_dir} cannot be used: {reason}.") from error


def _claim(data_dir: Path, home: str, jobs_dir: Path) -> None:
    note, mark = data_dir / NOTE_NAME, jobs_dir / MARK_NAME
    noted = _read(note)
    if noted is None and _has_entries(data_dir / JOBS_NAME):
        noted_place = data_dir / JOBS_NAME
    else:
        # What is noted is relative if it lies in the data directory, which may be moved.
        noted_place = data_dir / (noted or jobs_dir)
    if noted_place != jobs_dir:
        raise StoreUnavailable(_moved(data_dir, noted_place, jobs_dir))
    found = _read(mark)
    if found is None and noted is not None:
        raise StoreUnavailable(
            f"jobs_dir: the files of the jobs of {data_dir} lie in {jobs_dir}, and that is empty or something else: "
            f"it has no file {MARK_NAME}. Is its file system mounted? If they are lost for good, remove {note}: jobs "
            "then begin without their checkpoints."
        )
    if found not in (None, home):
        raise StoreUnavailable(
            f"jobs_dir: the directory {jobs_dir} has the files of another data directory's jobs. Choose another one."
        )
    if found is None:
        make_private(jobs_dir)
        if write_once(mark, home) != home:
            raise StoreUnavailable(f"jobs_dir: another server has just taken {jobs_dir}. Choose another one.")
    if noted is None:
        place = str(jobs_dir.relative_to(data_dir) if jobs_dir.is_relative_to(data_dir) else jobs_dir)
        if (written := write_once(note, place)) != place:
            raise StoreUnavailable(_moved(data_dir, data_dir / written, jobs_dir))


def _moved(data_dir: Path, noted: Path, jobs_dir: Path) -> str:
    return (
        f"jobs_dir: the files of the jobs of {data_dir} lie in {noted}, not in {jobs_dir}. Set it to where they are. "
        f"To move them: end the drivers, move the directory with the file {MARK_NAME} in it, and write the new path "
        f"into {data_dir / NOTE_NAME}."
    )


def _has_entries(directory: Path) -> bool:
    return directory.is_dir() and next(directory.iterdir(), None) is not None


def _read(file: Path) -> str | None:
    """What is written there; None if there is no such file, or nothing in it."""
    with contextlib.suppress(FileNotFoundError):
        return file.read_text(encoding="utf-8").strip() or None
    return None

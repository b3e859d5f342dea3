"""The files of jobs: creation for drivers, and removal.

All functions here block on the disk: the event loop calls them by `asyncio.to_thread`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path

from app.durablefiles import remove_tree, sync_to_disk, write_whole
from app.model.ids import is_id

# No job has an id that begins with a dot.
_ASIDE = ".forgotten-"
_ATTEMPT = "attempt-"
CHECKPOINT = "checkpoint"


def artifacts_name(version: int) -> str:
    """The directory of the files of a version, in that of its job."""
    return "artifacts" if version == 1 else f"artifacts-{version}"


def write_artifacts(directory: Path, artifacts: Mapping[str, bytes]) -> None:
    """Lay out a job's files for its drivers, each whole or not at all. The database keeps the originals.

    Raises:
        OSError: they are not all there.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in artifacts.items():
        write_whole(directory / name, content)
    for changed in (directory, directory.parent, directory.parent.parent):
        sync_to_disk(changed)


def are_intact(directory: Path, digests: Mapping[str, str]) -> bool:
    """Whether every file is there with its SHA-256, by name in hexadecimal digits."""
    return all(_digest(directory / name) == digest for name, digest in digests.items())


def _digest(path: Path) -> str | None:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def tidy_attempts(job_dir: Path, dead: int, keep: int) -> None:
    """Remove what attempts up to ``dead`` leave behind: all but the logs of the newest ``keep``.

    A driver that was killed leaves Spark's shuffle files and what its sinks had not committed. An assignment holds the
    secret of its attempt, and it is not needed when the attempt is over.
    """
    if not job_dir.is_dir():
        return
    for directory in job_dir.iterdir():
        number = directory.name.removeprefix(_ATTEMPT)
        if number == directory.name or not number.isdecimal() or int(number) > dead:
            continue
        if int(number) <= dead - keep:
            remove_tree(directory)
            continue
        for left in directory.iterdir():
            if left.match("*spec-*.json*") or stat.S_ISDIR(left.lstat().st_mode):
                remove_tree(left)


def jobs_in(jobs_dir: Path) -> list[str]:
    """The jobs that have files in ``jobs_dir``, in order."""
    if not jobs_dir.is_dir():
        return []
    return sorted(path.name for path in jobs_dir.iterdir() if is_id(path.name) and path.is_dir())


def has_run(job_dir: Path) -> bool:
    """Whether an attempt of the job ever began. What an attempt leaves may be gone, but for its checkpoint."""
    return (job_dir / CHECKPOINT).exists() or next(job_dir.glob(f"{_ATTEMPT}*"), None) is not None


def make_working_dir(directory: Path) -> None:
    """Make the working directory of a job before its first attempt.

    Raises:
        OSError: it cannot be made.
    """
    if not directory.exists():
        directory.mkdir(mode=0o700, parents=True)
        sync_to_disk(directory.parent)


def has_files(directory: Path) -> bool:
    """Whether there is anything but directories in ``directory``, or may be: part of it cannot be read."""

    def fail(error: OSError) -> None:
        raise error

    try:
        return any(files for _, _, files in os.walk(directory, onerror=fail))
    except FileNotFoundError as error:
        return bool(error.filename != str(directory))
    except OSError:
        return True


def untouched_s(job_dir: Path) -> float:
    """For how long nothing was made or removed in ``job_dir``; 0 if it is not there."""
    with contextlib.suppress(FileNotFoundError):
        return time.time() - job_dir.stat().st_mtime
    return 0.0


def touch(job_dir: Path) -> None:
    """Let `untouched_s` begin anew."""
    with contextlib.suppress(OSError):
        os.utime(job_dir)


def check_links(folder: Path) -> None:
    """Make ``folder`` if need be, and see whether it takes new files and hard links, as results of BATCH jobs need.

    Raises:
        OSError: it does not.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    probe, link = folder / f".probe-{os.getpid()}", folder / f".link-{os.getpid()}"
    try:
        probe.write_bytes(b"")
        link.hardlink_to(probe)
    finally:
        probe.unlink(missing_ok=True)
        link.unlink(missing_ok=True)


def set_aside(job_dir: Path) -> None:
    """Take the files of a job away under another name: at once, however many they are. Harmless when repeated.

    Raises:
        OSError: they are where they were.
    """
    if job_dir.exists():
        os.rename(job_dir, _aside(job_dir))


def put_back(job_dir: Path) -> None:
    """Undo `set_aside`."""
    if _aside(job_dir).exists():
        os.rename(_aside(job_dir), job_dir)


def remove_set_aside(job_dir: Path) -> None:
    """Remove what was set aside of a job; what cannot be removed stays, and the next start tries again."""
    remove_tree(_aside(job_dir))


def jobs_set_aside(jobs_dir: Path) -> list[str]:
    """The jobs whose files were set aside and are still there."""
    if not jobs_dir.is_dir():
        return []
    return [path.name.removeprefix(_ASIDE) for path in jobs_dir.iterdir() if path.name.startswith(_ASIDE)]


def _aside(job_dir: Path) -> Path:
    return job_dir.with_name(_ASIDE + job_dir.name)

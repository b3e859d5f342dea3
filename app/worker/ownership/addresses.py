"""The address file of a job, in which its driver finds the owner of the job if several control planes share
jobs.

The file has the owner's URL and, in a second line, the epoch of this ownership. A control plane that has lost
the job without knowing it must not direct the driver back to itself, so the epoch in the file never decreases.
"""

from __future__ import annotations

import os
from pathlib import Path

from app import filelocks


def write_address(file: Path, url: str, epoch: int) -> bool:
    """Tell drivers that ``url`` owns the job since ``epoch``. False: the file names a later owner, and stays.

    Raises:
        OSError: it cannot be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    lock_fd = filelocks.lock(file.with_name(f".{file.name}.lock"), wait=True)
    assert lock_fd is not None
    try:
        if _epoch(file) > epoch:
            return False
        _publish(file, f"{url}\n{epoch}\n")
        return True
    finally:
        os.close(lock_fd)


def write_server_address(file: Path, url: str) -> None:
    """Tell running drivers where this control plane is, in the file that all its jobs have where jobs cannot move."""
    _publish(file, f"{url}\n")


def _publish(file: Path, text: str) -> None:
    """Put ``text`` into ``file`` whole. Drivers may run as another user, and the directory keeps them out if need be.

    Not synced: after a power failure no driver is left to read it, and the next start writes it anew.
    """
    temporary = file.with_name(f".{file.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.chmod(0o644)
    os.replace(temporary, file)


def _epoch(file: Path) -> int:
    try:
        return int(file.read_text(encoding="ascii").split()[1])
    except (FileNotFoundError, IndexError, ValueError):
        return 0

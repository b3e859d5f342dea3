"""The lock of a driver, and who may write a checkpoint.

The lock file is locked before anything else and inherited by the JVM: it is free only when both are gone, which is
what a control plane waits for before it starts another driver. `owner.json` in the checkpoint adds the second fence:
it names the attempt that writes, so an older one, or one whose predecessor still lives, refuses to start. A checkpoint
that a program has chosen says which driver writes it, of whatever job.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from app import filelocks
from app.driver.failures import TRANSIENT_ERRNOS, DriverError
from app.durablefiles import write_whole

_PREDECESSOR_WAIT_S = 3.0
_POLL_S = 0.02


class BeingWritten(DriverError):
    """A checkpoint that is not to be touched while it is written."""


def take_driver_lock(path: str) -> int:
    """Lock ``path`` for the life of this process. Only a child that is given the descriptor by name inherits it.

    Raises:
        DriverError: another process holds it, or it cannot be opened.
    """
    try:
        fd = filelocks.lock(path)
    except OSError as error:
        raise DriverError(
            f"The lock file {path} of the driver cannot be opened: {error.strerror}."
        ) from error
    if fd is None:
        raise DriverError(f"The lock file {path} is held by another driver process.")
    return fd


def claim_checkpoint(checkpoint_dir: Path, *, lock_file: str, attempt: int, epoch: int) -> None:
    """Make this driver the only writer of ``checkpoint_dir``.

    Raises:
        DriverError: it is not writable, belongs to a newer attempt, or its last writer is still alive.
    """
    owner_file = checkpoint_dir / "owner.json"
    with _claiming(checkpoint_dir, "owner.lock"):
        if (owner := _read_owner(owner_file)) is not None:
            if (owner["epoch"], owner["attempt"]) > (epoch, attempt):
                raise DriverError(
                    f"The checkpoint {checkpoint_dir} belongs to attempt {owner['attempt']} of epoch "
                    f"{owner['epoch']}, which is newer than attempt {attempt} of epoch {epoch}."
                )
            if owner["lock_file"] != lock_file:
                _await_end(str(owner["lock_file"]), checkpoint_dir, recoverable=True)
        claim = json.dumps({"lock_file": lock_file, "attempt": attempt, "epoch": epoch})
        write_whole(owner_file, claim.encode())


def claim_own_checkpoint(checkpoint_dir: Path, *, lock_file: str) -> None:
    """Make this driver the only writer of a checkpoint that a program has chosen, or of a sink's folder: another job
    may name it too.

    Raises:
        DriverError: it is not writable, or another driver that writes it is alive.
    """
    writer_file = checkpoint_dir / "slotwise-writer.json"
    with _claiming(checkpoint_dir, "slotwise-writer.lock"):
        writer = _read(writer_file, "lock_file")
        if writer is not None and writer["lock_file"] != lock_file:
            _await_end(str(writer["lock_file"]), checkpoint_dir, recoverable=False)
        write_whole(writer_file, json.dumps({"lock_file": lock_file}).encode())


def refuse_if_written(checkpoint: Path) -> None:
    """
    Raises:
        BeingWritten: a driver that is alive writes the checkpoint, which may be that of one query of a job.
        DriverError: it cannot be told.
    """
    # A link does not lie beside the claim.
    checkpoint = checkpoint.resolve()
    for claim in (checkpoint / "slotwise-writer.json", checkpoint.parent / "owner.json"):
        writer = _read(claim, "lock_file")
        if writer is None:
            continue
        _await_end(str(writer["lock_file"]), checkpoint, recoverable=False)


@contextlib.contextmanager
def _claiming(checkpoint_dir: Path, lock_name: str) -> Iterator[None]:
    """Hold the file ``lock_name`` locked for a few statements; waits for whoever holds it."""
    try:
        checkpoint_dir.mkdir(parents=True, exist_ok=True)
        fd = filelocks.lock(checkpoint_dir / lock_name, wait=True)
        assert fd is not None
        try:
            yield
        finally:
            os.close(fd)
    except OSError as error:
        raise DriverError(
            f"The checkpoint directory {checkpoint_dir} is not writable: {error.strerror}.",
            recoverable=error.errno in TRANSIENT_ERRNOS,
        ) from error


def is_owner(checkpoint_dir: Path, *, lock_file: str, attempt: int) -> bool:
    """Whether the checkpoint is still this driver's: asked before each commit of a sink."""
    try:
        owner = _read_owner(checkpoint_dir / "owner.json")
    except OSError:
        return False
    return owner is not None and owner["lock_file"] == lock_file and owner["attempt"] == attempt


def _await_end(other: str, checkpoint_dir: Path, *, recoverable: bool) -> None:
    """Wait until no process holds the lock file ``other``: the JVM of a killed driver lives on for a moment."""
    deadline = time.monotonic() + _PREDECESSOR_WAIT_S
    while _is_held(other, checkpoint_dir):
        if time.monotonic() > deadline:
            raise BeingWritten(
                f"The checkpoint {checkpoint_dir} is still being written by another driver, which holds {other}.",
                recoverable=recoverable,
            )
        time.sleep(_POLL_S)


def _is_held(lock_file: str, checkpoint_dir: Path) -> bool:
    try:
        return filelocks.is_held(lock_file)
    except OSError as error:
        raise DriverError(
            f"Whether the checkpoint {checkpoint_dir} is still being written by another driver cannot be told: its "
            f"lock file {lock_file} cannot be opened: {error.strerror}.",
            recoverable=error.errno in TRANSIENT_ERRNOS,
        ) from error


def _read_owner(path: Path) -> dict[str, Any] | None:
    return _read(path, "lock_file", "attempt", "epoch")


def _read(path: Path, *fields: str) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        raise DriverError(f"The file {path}, which says who writes the checkpoint, is damaged.") from None
    if not isinstance(value, dict) or not set(fields) <= value.keys():
        raise DriverError(f"The file {path}, which says who writes the checkpoint, is damaged.")
    return value

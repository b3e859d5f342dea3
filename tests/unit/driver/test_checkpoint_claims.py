"""One driver at a time writes a checkpoint: the newest attempt, and only once the one before is certainly gone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app import filelocks
from app.driver import locks
from app.driver.failures import DriverError
from app.driver.locks import claim_checkpoint, claim_own_checkpoint, is_owner


class Driver:
    """A process with a lock of its own, which it holds until it is ``gone``."""

    def __init__(self, directory: Path, name: str) -> None:
        self.checkpoint = directory / "checkpoint"
        self.lock_file = str(directory / f"{name}.lock")
        self._fd = filelocks.lock(self.lock_file)

    def gone(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
        self._fd = None

    def claim(self, attempt: int, *, epoch: int = 1) -> None:
        claim_checkpoint(self.checkpoint, lock_file=self.lock_file, attempt=attempt, epoch=epoch)

    def owns(self, attempt: int) -> bool:
        return is_owner(self.checkpoint, lock_file=self.lock_file, attempt=attempt)


@pytest.fixture(autouse=True)
def never_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_PREDECESSOR_WAIT_S", 0.0)


@pytest.fixture
def first(tmp_path: Path) -> Driver:
    return Driver(tmp_path, "first")


@pytest.fixture
def second(tmp_path: Path) -> Driver:
    return Driver(tmp_path, "second")


def test_the_next_attempt_takes_over_from_a_driver_that_is_gone(first: Driver, second: Driver) -> None:
    assert not first.owns(1), "nobody has claimed it"
    first.claim(1)
    assert first.owns(1)
    first.gone()
    second.claim(2)
    assert second.owns(2) and not first.owns(1)


def test_as_long_as_the_writer_before_lives_nobody_else_writes(first: Driver, second: Driver) -> None:
    first.claim(1)
    with pytest.raises(DriverError, match="still being written by another driver") as refused:
        second.claim(2)
    assert refused.value.recoverable and first.owns(1)


def test_a_writer_that_is_just_ending_is_waited_for(
    first: Driver, second: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    first.claim(1)
    monkeypatch.setattr(locks, "_PREDECESSOR_WAIT_S", 60.0)
    monkeypatch.setattr("app.driver.locks.time.sleep", lambda _: first.gone())
    second.claim(2)
    assert second.owns(2)


def test_a_driver_that_waits_for_its_next_attempt_goes_on_with_it(first: Driver) -> None:
    first.claim(1)
    first.claim(2)
    assert first.owns(2) and not first.owns(1), "what is left of the attempt before commits nothing"
    first.claim(2)
    assert first.owns(2), "the same claim again"


@pytest.mark.parametrize(("attempt", "epoch"), [(1, 2), (2, 1), (1, 1)])
def test_an_attempt_that_is_over_does_not_get_it_back(
    first: Driver, second: Driver, attempt: int, epoch: int
) -> None:
    first.claim(2, epoch=2)
    first.gone()
    for late in (second, first):
        with pytest.raises(DriverError, match="belongs to attempt 2 of epoch 2, which is newer than attempt"):
            late.claim(attempt, epoch=epoch)
    assert first.owns(2)


def test_the_epoch_of_its_owner_counts_before_the_number_of_the_attempt(
    first: Driver, second: Driver
) -> None:
    first.claim(5, epoch=1)
    first.gone()
    second.claim(4, epoch=2)
    assert second.owns(4)


def test_a_claim_that_is_damaged_is_nobodys(first: Driver) -> None:
    first.claim(1)
    for text in ("", "[]", '{"attempt": 1, "epoch": 1}'):
        (first.checkpoint / "owner.json").write_text(text)
        with pytest.raises(DriverError, match="is damaged"):
            first.claim(2)


def test_a_checkpoint_that_a_program_has_chosen_has_one_writer_of_all_jobs(
    first: Driver, second: Driver
) -> None:
    for _ in range(2):
        claim_own_checkpoint(first.checkpoint, lock_file=first.lock_file)
    with pytest.raises(DriverError, match="still being written by another driver") as refused:
        claim_own_checkpoint(second.checkpoint, lock_file=second.lock_file)
    assert not refused.value.recoverable, "another job does not go away by trying again"
    first.gone()
    claim_own_checkpoint(second.checkpoint, lock_file=second.lock_file)
    second.gone()
    Path(second.lock_file).unlink()
    claim_own_checkpoint(first.checkpoint, lock_file=first.lock_file)


def test_a_claim_of_a_program_that_cannot_be_made_is_told(first: Driver) -> None:
    claim_own_checkpoint(first.checkpoint, lock_file=first.lock_file)
    (first.checkpoint / "slotwise-writer.json").write_text("{}")
    with pytest.raises(DriverError, match="is damaged"):
        claim_own_checkpoint(first.checkpoint, lock_file=first.lock_file)
    blocked = first.checkpoint / "metadata"
    blocked.touch()
    with pytest.raises(DriverError, match="is not writable"):
        claim_own_checkpoint(blocked, lock_file=first.lock_file)

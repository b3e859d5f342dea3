"""What waits in files: looked at not too often, and its records estimated by what was read before."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from app.driver import file_backlog
from app.driver.file_backlog import FileBacklog, Waiting
from app.driver.progress import SourceTold


class Folder:
    """Plays the directory of a source, and how long it takes to list it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now_s, self.takes_s = 100.0, 0.0
        self.waiting: Waiting | None = Waiting(0, 0, 0)
        self.asked: list[tuple[int, int, int, bool]] = []
        patch.setattr(file_backlog, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        self.backlog = FileBacklog(self._find)

    def _find(self, place: int, after: int, end: int, look: bool) -> Waiting | None:
        self.asked.append((place, after, end, look))
        self.now_s += self.takes_s * look
        return self.waiting

    def batch(self, rows: int, before: int, end: int) -> SourceTold:
        (told,) = self.backlog.told((SourceTold(rows, log=(before, end)),))
        return told


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Folder:
    return Folder(monkeypatch)


def test_records_that_wait_are_as_many_for_each_byte_as_were_read(folder: Folder) -> None:
    folder.waiting = Waiting(3, 3_000, 500)
    told = folder.batch(50, -1, 0)
    assert (told.files, told.size_bytes, told.waiting) == (3, 3_000, 300)
    # Files of late count for more.
    folder.waiting = Waiting(1, 1_000, 500)
    assert folder.batch(5, 0, 1).waiting == round(1_000 * (0.9 * 50 + 5) / (0.9 * 500 + 500))
    # A batch without data, and one whose files were removed: what was learned stays.
    for waiting in (Waiting(1, 1_000, 0), Waiting(1, 1_000, None)):
        folder.waiting = waiting
        assert folder.batch(0, 1, 1).waiting == 53
    folder.waiting = Waiting(0, 0, 0)
    assert folder.batch(0, 1, 1).waiting == 0
    assert folder.asked[:3] == [(0, -1, 0, True), (0, 0, 1, True), (0, 1, 1, True)]


def test_without_a_batch_that_has_read_files_their_records_are_not_known(folder: Folder) -> None:
    folder.waiting = Waiting(3, 3_000, 0)
    told = folder.batch(0, 4, 4)
    assert (told.files, told.waiting) == (3, None)


def test_a_directory_that_takes_long_is_looked_at_seldom(folder: Folder) -> None:
    folder.takes_s, folder.waiting = 1.0, Waiting(4, 400, 100)
    assert folder.batch(10, -1, 0).waiting == 40
    for number in range(1, 21):
        folder.now_s += 1.0
        folder.waiting = Waiting(2, 200, 100)
        assert folder.batch(10, number - 1, number).files == 2
    assert [number for number, (_, _, _, look) in enumerate(folder.asked) if look] == [0, 20]
    assert folder.asked[-1] == (0, 19, 20, True)


def test_what_could_not_be_found_is_looked_for_anew(folder: Folder) -> None:
    folder.takes_s = 1.0
    assert folder.batch(10, -1, 0).files == 0
    folder.waiting = None
    assert folder.batch(10, 0, 1).files is None
    folder.batch(10, 1, 2)
    assert [look for *_, look in folder.asked] == [True, False, True]


def test_other_sources_are_not_looked_at_nor_is_one_that_cannot_be_seen(folder: Folder) -> None:
    folder.waiting = None
    kafka = SourceTold(5, 7, {"words": 7}, 7)
    files = SourceTold(5, log=(0, 1))
    assert folder.backlog.told((kafka, files)) == (kafka, files)
    assert folder.asked == [(1, 0, 1, True)]

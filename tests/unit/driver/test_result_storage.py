"""What goes of a job's results and what stays, on this host and on a file system that may be away."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from app.driver.batch.results import MANIFEST, Keeper, LostResult, check_result, readable, sweep, views_dir
from app.driver.batch.sources import local_size
from app.driver.batch.storage import DataFile, LocalStorage, Storage, Storages
from app.driver.failures import DriverError
from app.model.batch import Read, RegionOrder, Result

ROOT = "hdfs://name/results"


class Remote(Storage):
    """A file system elsewhere: ``tree`` has the names in each directory. ``away``: it cannot be asked."""

    def __init__(self, *places: str) -> None:
        self.places = set(places)
        self.away = False
        self.asked: list[str] = []
        self.removed: list[str] = []

    def _ask(self, place: str) -> None:
        self.asked.append(place)
        if self.away:
            raise DriverError("It cannot be asked.", recoverable=True)

    def uri(self, place: str) -> str:
        return place

    def remove(self, place: str) -> None:
        self._ask(place)
        self.removed.append(place)
        self.places = {one for one in self.places if one != place and not one.startswith(place + "/")}

    def names(self, place: str) -> list[str]:
        self._ask(place)
        start = place.rstrip("/") + "/"
        return sorted({one[len(start) :].partition("/")[0] for one in self.places if one.startswith(start)})

    def lengths(self, place: str) -> dict[str, int]:
        raise NotImplementedError

    def data_files(self, place: str) -> list[DataFile]:
        raise NotImplementedError

    def read(self, place: str, name: str) -> bytes:
        raise NotImplementedError

    def write(self, place: str, name: str, content: bytes) -> None:
        raise NotImplementedError

    def damaged(self, place: str, names: Sequence[str], schema: str) -> tuple[str, str] | None:
        raise NotImplementedError


def keeper(storage: Storage, root: str = f"{ROOT}/job") -> Keeper:
    class Only:
        def of(self, _: str) -> Storage:
            return storage

    return Keeper(cast(Storages, Only()), root)


def read(place: str, *groups: tuple[int, ...], buckets: int = 4) -> Read:
    return Read("v", "p", Result("d", 1, place, "0" * 64, (1,) * buckets, (1,) * buckets), groups)


def order(*reads: Read) -> RegionOrder:
    return RegionOrder(0, 1, {"v": 2}, 1, reads)


def test_what_is_not_kept_goes(tmp_path: Path) -> None:
    for name in ("a/1", "a/2", "b/1", ".views/0-1", ".views/1-1"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "part-0").write_text("x")
    root = str(tmp_path)
    sweep(LocalStorage(), root, {f"{root}/a/2", views_dir(root, 1, 1)})
    assert sorted(str(one.relative_to(tmp_path)) for one in tmp_path.glob("*/*")) == [".views/1-1", "a/2"]
    sweep(LocalStorage(), str(tmp_path / "not there"), set())


def test_what_cannot_be_removed_does_not_keep_the_rest(tmp_path: Path) -> None:
    for name in ("a/1", "a/2", "b/1"):
        (tmp_path / name).mkdir(parents=True)

    class Stuck(LocalStorage):
        def remove(self, place: str) -> None:
            if place.endswith("a/1"):
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
            super().remove(place)

    with pytest.raises(OSError, match="busy"):
        sweep(Stuck(), str(tmp_path), set())
    assert [str(one.relative_to(tmp_path)) for one in tmp_path.glob("*/*")] == ["a/1"]


def test_what_was_kept_last_time_is_not_looked_at_again() -> None:
    storage = Remote(f"{ROOT}/job/a/1", f"{ROOT}/job/a/2")
    kept = keeper(storage)
    kept.keep({f"{ROOT}/job/a/2"})
    assert storage.removed == [f"{ROOT}/job/a/1"]
    storage.asked.clear()
    kept.keep({f"{ROOT}/job/a/2"})
    assert storage.asked == []
    kept.keep(set())
    assert storage.places == set()


def test_a_file_system_that_is_away_fails_nothing_and_is_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage = Remote(f"{ROOT}/job/a/1")
    kept = keeper(storage)
    storage.away = True
    with caplog.at_level(logging.WARNING):
        kept.keep(set())
        kept.remove_all()
    assert caplog.text.count("It cannot be asked.") == 2
    storage.away = False
    kept.keep(set())
    assert storage.places == set()


def test_results_of_jobs_that_have_ended_go_and_no_others() -> None:
    storage = Remote(f"{ROOT}/ended/a/1", f"{ROOT}/other/a/1", f"{ROOT}/job/a/1")
    keeper(storage).remove_ended([f"{ROOT}/ended", f"{ROOT}/never was there"])
    for thread in threading.enumerate():
        if thread.name == "leftovers":
            thread.join(10)
    assert storage.removed == [f"{ROOT}/ended"]


def test_the_control_plane_removes_what_is_on_its_host() -> None:
    assert keeper(Remote()).is_driver_alone
    assert not keeper(LocalStorage(), "/var/results/job").is_driver_alone


def test_groups_are_for_links_or_for_files_that_are_divided_like_that_already() -> None:
    halves, each = ((0, 2), (1, 3)), ((0,), (1,), (2,), (3,))
    local = order(read("/r/job/d/1", *halves), read("/r/job/d/1", *each))
    assert readable(local, "/r/job") == local
    # The setting was changed meanwhile: links do not lead from one file system to another.
    elsewhere = [one.groups for one in readable(local, "/r/jo").reads]
    assert elsewhere == [(), each]
    remote = order(read(f"{ROOT}/job/d/1", *halves), read(f"{ROOT}/job/d/1", *each), read(f"{ROOT}/job/d/1"))
    assert [one.groups for one in readable(remote, f"{ROOT}/job").reads] == [(), each, ()]
    turned = order(read(f"{ROOT}/job/d/1", (1,), (0,), (2,), (3,)))
    assert [one.groups for one in readable(turned, f"{ROOT}/job").reads] == [()]


def test_a_result_that_cannot_be_read_is_lost_and_one_that_cannot_be_asked_for_is_not(tmp_path: Path) -> None:
    gone = read(str(tmp_path / "gone")).result
    with pytest.raises(LostResult, match="its manifest cannot be read: No such file"):
        check_result(LocalStorage(), gone)
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone" / MANIFEST).write_text("{}")
    with pytest.raises(LostResult, match="is not the one that was written"):
        check_result(LocalStorage(), gone)

    class Away(Remote):
        def read(self, place: str, name: str) -> bytes:
            raise DriverError("It cannot be asked.", recoverable=True)

    with pytest.raises(DriverError):
        check_result(Away(), gone)


def test_the_size_of_a_source_is_that_of_its_data_files(tmp_path: Path) -> None:
    (tmp_path / "day=1").mkdir()
    for name, size in {"a.parquet": 5, "day=1/b.parquet": 7, "_SUCCESS": 3, ".c.crc": 11}.items():
        (tmp_path / name).write_bytes(bytes(size))
    staged = tmp_path / ".staging"
    staged.mkdir()
    (staged / "part-0.parquet").write_text("not committed")
    assert local_size(tmp_path) == 12
    assert local_size(tmp_path / "a.parquet") == 5
    assert local_size(tmp_path / "nothing") is None

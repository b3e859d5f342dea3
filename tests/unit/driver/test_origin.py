"""The checkpoint that a new job goes on from: which it is, whether it fits, and its copy."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import pytest

from app import filelocks
from app.driver import checkpoints, locks
from app.driver.checkpoints import beside, copy_beside, make_ready, standing
from app.driver.failures import DriverError
from app.driver.locks import BeingWritten
from app.driver.program.origin import SINK_NOTE, Origin, adopt
from app.model.jobgraph import Role
from app.model.planned import PlannedVertex
from tests.unit.driver.test_checkpoints import committed

SOURCE = PlannedVertex("words", Role.SOURCE, "kafka")
COUNTS = PlannedVertex("counts", Role.OPERATOR, "Aggregate", ("words",), True, 8)
STORE = PlannedVertex("store", Role.SINK, "parquet", ("counts",))


@pytest.fixture(autouse=True)
def never_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_PREDECESSOR_WAIT_S", 0.0)


def checkpoint(place: Path, *, state: bool = True) -> Path:
    for batch in range(3):
        committed(place, batch, 8)
    if state:
        (place / "state" / "0" / "1").mkdir(parents=True)
        (place / "state" / "0" / "1" / "3.delta").write_text("state")
    (place / "slotwise-writer.json").write_text(json.dumps({"lock_file": str(place.parent / "driver.lock")}))
    return place


def files(place: Path) -> dict[str, str]:
    return {str(each.relative_to(place)): each.read_text() for each in place.rglob("*") if each.is_file()}


def test_it_is_found_by_the_name_of_the_sink(tmp_path: Path) -> None:
    large = checkpoint(tmp_path / "large")
    noted = checkpoint(tmp_path / ("a" * 32))
    (noted / SINK_NOTE).write_text("figures")
    checkpoint(beside(large, "old"))
    origin = Origin(tmp_path)
    assert origin.checkpoint_of("large") == large
    assert origin.checkpoint_of("figures") == noted
    with pytest.raises(DriverError, match="has no checkpoint of small, but those of figures, large"):
        origin.checkpoint_of("small")


def test_the_only_one_is_that_of_the_only_query(tmp_path: Path) -> None:
    place = checkpoint(tmp_path / "place")
    for directory in (place, tmp_path):
        origin = Origin(directory)
        assert origin.checkpoint_of("any") == origin.checkpoint_of("any") == place
        with pytest.raises(DriverError, match="one checkpoint for two queries of the program, any and other"):
            origin.checkpoint_of("other")


def test_one_of_several_queries_has_to_be_named(tmp_path: Path) -> None:
    """A query that a new version adds must not begin where another one was."""
    place = checkpoint(tmp_path / "figures")
    origin = Origin(tmp_path)
    assert origin.checkpoint_of("figures", ["added"]) == place
    with pytest.raises(DriverError, match="has no checkpoint of added, but those of figures"):
        origin.checkpoint_of("added", ["figures"])


def test_a_checkpoint_by_itself_is_for_the_first_query_of_any_attempt(tmp_path: Path) -> None:
    place = checkpoint(tmp_path / "place")
    with pytest.raises(DriverError, match="one checkpoint for two queries of the program, first and second"):
        Origin(place).checkpoint_of("second", ["first"])


def test_a_job_of_before_has_a_directory_of_the_same_name_for_its_query(tmp_path: Path) -> None:
    places = {name: checkpoint(tmp_path / name) for name in ("7f3a", "9b21")}
    assert Origin(tmp_path).checkpoint_of("store", ["other"], "7f3a") == places["7f3a"]
    with pytest.raises(DriverError, match="has no checkpoint of store, but those of 7f3a, 9b21"):
        Origin(tmp_path).checkpoint_of("store", ["other"], "1111")


def test_two_of_one_sink_are_refused(tmp_path: Path) -> None:
    for name in ("a", "a-backup"):
        (checkpoint(tmp_path / name) / SINK_NOTE).write_text("counts")
    with pytest.raises(DriverError, match="has two checkpoints of counts, a and a-backup: leave one"):
        Origin(tmp_path).checkpoint_of("counts")


def test_a_damaged_one_is_refused_in_a_sentence(tmp_path: Path) -> None:
    place = checkpoint(tmp_path / "place")
    (place / "offsets" / "2").write_bytes(b"v1\n\xff\n{}\n")
    with pytest.raises(DriverError, match=r"from: the checkpoint .*place cannot be read: 'utf-8' codec"):
        Origin(place).check(place, (SOURCE, COUNTS, STORE), 1, None, None)


def test_what_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(DriverError, match=r"^from: .* is no checkpoint"):
        Origin(tmp_path).checkpoint_of("store")
    with pytest.raises(
        DriverError, match=r"^from: .* cannot be read on the host of the driver: No such file"
    ):
        Origin(tmp_path / "none").checkpoint_of("store")


def refused(place: Path, vertices: tuple[PlannedVertex, ...], **given: Path) -> str:
    with pytest.raises(DriverError) as caught:
        sources = sum(each.role is Role.SOURCE for each in vertices)
        Origin(place).check(place, vertices, sources, given.get("own"), given.get("folder"))
    return str(caught.value)


def test_what_does_not_fit_the_plan(tmp_path: Path) -> None:
    place, stateless = checkpoint(tmp_path / "place"), checkpoint(tmp_path / "stateless", state=False)
    fits = (SOURCE, COUNTS, STORE)
    Origin(place).check(place, fits, 1, tmp_path / "own", None)
    two = (SOURCE, PlannedVertex("more", Role.SOURCE, "kafka"), COUNTS, STORE)
    assert "has 2 sources, and the checkpoint" in refused(place, two)
    assert "keeps no state, and the checkpoint" in refused(place, (SOURCE, STORE))
    assert "keeps state, and the checkpoint" in refused(stateless, fits)
    own = checkpoint(tmp_path / "own")
    assert "which is not empty: it has " in refused(place, fits, own=own)


def test_a_file_sink_goes_on_where_its_log_ends(tmp_path: Path) -> None:
    place, folder, fits = checkpoint(tmp_path / "place"), tmp_path / "out", (SOURCE, COUNTS, STORE)
    log = folder / "_spark_metadata"
    assert "Spark's log ends with batch -1, and the checkpoint" in refused(place, fits, folder=folder)
    log.mkdir(parents=True)
    (log / "1.compact").touch()
    assert "ends with batch 1, and the" in refused(place, fits, folder=folder)
    for batch in (2, 3):
        (log / str(batch)).touch()
        Origin(place).check(place, fits, 1, None, folder)
    (log / "4").touch()
    assert "Spark's log has batches up to 4 already" in refused(place, fits, folder=folder)


def test_one_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    place = checkpoint(tmp_path / "place")
    held = filelocks.lock(tmp_path / "driver.lock")
    assert held is not None
    for touch in (
        lambda: Origin(place).check(place, (SOURCE, COUNTS, STORE), 1, None, None),
        lambda: adopt(lambda: place, tmp_path / "copy"),
    ):
        with pytest.raises(BeingWritten, match="is still being written by another driver"):
            touch()
    os.close(held)
    # That of a query of a job, where the directory of all says who writes.
    (tmp_path / "owner.json").write_text(json.dumps({"lock_file": str(tmp_path / "own.lock")}))
    held = filelocks.lock(tmp_path / "own.lock")
    with pytest.raises(BeingWritten):
        adopt(lambda: place, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    assert held is not None
    os.close(held)


def test_the_copy_is_whole_and_the_original_as_it_was(tmp_path: Path) -> None:
    place, copy = checkpoint(tmp_path / "place"), tmp_path / "job" / "copy"
    before = files(place)
    adopt(lambda: place, copy)
    assert files(copy) == {name: text for name, text in before.items() if name != "slotwise-writer.json"}
    committed(copy, 3, 8)
    (copy / "state" / "0" / "1" / "3.delta").unlink()
    adopt(lambda: place, copy)
    assert standing(copy).committed == 3, "what has gone on is not copied again"
    assert files(place) == before and sorted(each.name for each in copy.parent.iterdir()) == ["copy"]
    adopt(partial(Origin(tmp_path / "gone").checkpoint_of, "store"), copy)


@pytest.mark.parametrize("point", ["copying", "ready", "between", "old"])
def test_a_kill_in_the_middle_is_made_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    place, copy = checkpoint(tmp_path / "place"), tmp_path / "copy"
    copy.mkdir()
    (copy / SINK_NOTE).write_text("store")
    copy_beside(copy, place)
    if point == "copying":
        (beside(copy, "next") / "offsets" / "2").unlink()
    else:
        make_ready(copy)
    if point == "between":
        copy.rename(beside(copy, "old"))
    if point == "old":
        monkeypatch.setattr(checkpoints, "forget_old", lambda _: None)
        checkpoints.finish_replacing(copy)
    adopt(lambda: place, copy)
    assert standing(copy).committed == 2
    assert not any(beside(copy, what).exists() for what in ("next", "ready"))


def test_files_of_others_are_not_replaced(tmp_path: Path) -> None:
    place, copy = checkpoint(tmp_path / "place"), tmp_path / "copy"
    copy.mkdir()
    (copy / "notes.txt").write_text("mine")
    with pytest.raises(DriverError, match=r"is not empty: it has notes\.txt"):
        adopt(lambda: place, copy)
    assert (copy / "notes.txt").read_text() == "mine"

"""What a checkpoint says of its past, and the pauses that are measured from it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.driver.checkpoints import Past, mark_begun, mark_idle, read_past
from app.driver.gap_meter import GapMeter


def checkpoint(directory: Path, *, planned: int, committed: int) -> Path:
    """A checkpoint with batches 0 to ``planned`` - 1, of which ``committed`` were committed, one per second."""
    for name, count in (("offsets", planned), ("commits", committed)):
        (directory / name).mkdir(parents=True)
        for batch in range(count):
            file = directory / name / str(batch)
            file.touch()
            os.utime(file, (1_000 + batch, 1_000 + batch))
            (directory / name / f".{batch}.crc").touch()
    return directory


def test_a_new_query_has_no_past(tmp_path: Path) -> None:
    assert read_past(tmp_path / "nowhere") == Past((), None)


def test_a_query_that_ended_after_a_commit_has_nothing_to_repeat(tmp_path: Path) -> None:
    past = read_past(checkpoint(tmp_path, planned=3, committed=3))
    assert past == Past((1_000_000, 1_001_000, 1_002_000), None, newest=2)


def test_a_batch_that_was_begun_runs_again(tmp_path: Path) -> None:
    directory = checkpoint(tmp_path, planned=3, committed=2)
    mark_begun(directory, 2)
    assert read_past(directory).interrupted == 2


def test_what_was_begun_may_be_noted_elsewhere(tmp_path: Path) -> None:
    directory = checkpoint(tmp_path / "of the program", planned=3, committed=2)
    notes = tmp_path / "notes"
    notes.mkdir()
    mark_begun(notes, 2)
    assert read_past(directory, begun_in=notes).interrupted == 2
    assert read_past(directory).interrupted is None


@pytest.mark.parametrize("begun", [None, 1])
def test_a_batch_that_was_planned_only_is_no_repetition(tmp_path: Path, begun: int | None) -> None:
    directory = checkpoint(tmp_path, planned=3, committed=2)
    if begun is not None:
        mark_begun(directory, begun)
    assert read_past(directory).interrupted is None


def test_only_the_latest_commits_are_remembered(tmp_path: Path) -> None:
    past = read_past(checkpoint(tmp_path, planned=40, committed=40))
    assert past.committed_ms[-1] == 1_039_000
    assert len(past.committed_ms) == 11


def committed_every_second(meter: GapMeter, count: int) -> None:
    for second in range(1, count + 1):
        meter.committed(second * 1_000, at_plan=True)


def test_the_gap_is_the_longest_pause_less_the_steady_interval() -> None:
    meter = GapMeter(Past((), None))
    committed_every_second(meter, 5)
    meter.changing()
    meter.committed(6_000, at_plan=False)
    meter.committed(9_500, at_plan=True)
    assert meter.take() == 2_500
    assert meter.take() is None, "it is told once"


def test_a_change_that_nobody_noticed_has_no_gap() -> None:
    meter = GapMeter(Past((), None))
    committed_every_second(meter, 5)
    meter.changing()
    meter.committed(5_900, at_plan=True)
    assert meter.take() == 0


def test_of_several_changes_the_first_counts() -> None:
    meter = GapMeter(Past((), None))
    committed_every_second(meter, 3)
    meter.changing()
    meter.committed(6_000, at_plan=False)
    meter.changing()
    meter.committed(7_000, at_plan=True)
    assert meter.take() == 2_000


def test_an_attempt_is_measured_from_the_last_commit_before_it() -> None:
    meter = GapMeter(Past((1_000, 2_000, 3_000), None))
    meter.committed(8_000, at_plan=True)
    assert meter.take() == 4_000


def test_without_a_steady_interval_the_gap_is_the_pause_itself() -> None:
    meter = GapMeter(Past((), None))
    meter.committed(1_000, at_plan=True)
    meter.changing()
    meter.committed(4_700, at_plan=True)
    assert meter.take() == 3_700


def test_so_it_is_if_the_change_is_ordered_during_the_first_batch() -> None:
    meter = GapMeter(Past((), None))
    meter.changing()
    meter.committed(1_000, at_plan=False)
    meter.committed(4_700, at_plan=True)
    assert meter.take() == 3_700


def test_and_of_an_attempt_after_a_single_batch() -> None:
    meter = GapMeter(Past((1_000,), None))
    meter.committed(4_700, at_plan=True)
    assert meter.take() == 3_700


def test_before_the_first_batch_there_is_no_pause() -> None:
    meter = GapMeter(Past((), None))
    meter.changing()
    meter.committed(1_000, at_plan=True)
    meter.committed(2_000, at_plan=True)
    assert meter.take() is None


def test_a_change_that_comes_into_force_without_input_holds_up_nothing() -> None:
    meter = GapMeter(Past((), None))
    committed_every_second(meter, 3)
    meter.changing()
    meter.idle(3_300)
    assert meter.take() == 0
    # The pause until there is input is nobody's, also not the next change's.
    meter.committed(60_000, at_plan=True)
    assert meter.take() is None


def test_what_was_held_up_before_the_input_ended_counts() -> None:
    meter = GapMeter(Past((), None))
    committed_every_second(meter, 3)
    meter.changing()
    meter.committed(6_000, at_plan=False)
    meter.idle(6_300)
    assert meter.take() == 2_000


def test_a_query_that_never_had_input_has_no_gap() -> None:
    meter = GapMeter(Past((), None))
    meter.changing()
    meter.idle(300)
    assert meter.take() is None


def test_the_silence_before_a_change_is_not_its_gap() -> None:
    meter = GapMeter(Past((), None))
    committed_every_second(meter, 3)
    meter.idle(3_600_000)
    meter.changing()
    meter.committed(3_600_800, at_plan=True)
    assert meter.take() == 800


def test_a_source_that_is_idle_between_its_batches_has_a_steady_interval_too() -> None:
    meter = GapMeter(Past((), None))
    committed_every_second(meter, 3)
    meter.idle(3_900)
    meter.changing()
    meter.committed(4_400, at_plan=True)
    assert meter.take() == 400


# ---- over attempts that came to nothing


def log_of(directory: Path, *batches: tuple[int, int], planned: tuple[int, int] | None = None) -> Path:
    """A checkpoint with these batches: when each was committed, in seconds, and how far the source was read with it."""
    for name in ("offsets", "commits"):
        (directory / name).mkdir(parents=True)
    for batch, (at_s, read) in enumerate([*batches, *([planned] if planned else [])]):
        (directory / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{read}")
        os.utime(directory / "offsets" / str(batch), (at_s, at_s))
        if batch < len(batches):
            (directory / "commits" / str(batch)).touch()
            os.utime(directory / "commits" / str(batch), (at_s, at_s))
    return directory


def gap_of(directory: Path, since_s: int, *, first_batch_s: int) -> int | None:
    """The gap that an attempt measures which is wanted since then and commits its first batch at that time."""
    past = read_past(directory, since_ms=since_s * 1_000)
    meter = GapMeter(past, since_s * 1_000)
    meter.committed(first_batch_s * 1_000, at_plan=True)
    return meter.take()


STEADY = [(second, second) for second in range(100, 106)]


def test_the_pause_of_starts_that_were_spoiled_is_in_the_gap(tmp_path: Path) -> None:
    assert gap_of(log_of(tmp_path, *STEADY), 106, first_batch_s=275) == 169_000


def test_the_planned_batch_that_runs_before_a_redistribution_ends_one_pause_and_begins_another(
    tmp_path: Path,
) -> None:
    """Starts were killed for 107 s, then it ran; the redistribution took 7 s."""
    directory = log_of(tmp_path, *STEADY, (213, 113))
    assert gap_of(directory, 106, first_batch_s=220) == 107_000
    assert gap_of(directory, 0, first_batch_s=220) == 6_000, "if the change begins with this attempt"


def test_the_commit_of_a_redistribution_is_no_output(tmp_path: Path) -> None:
    assert gap_of(log_of(tmp_path, *STEADY, (180, 105)), 106, first_batch_s=190) == 84_000


def test_nor_is_a_batch_that_only_lets_time_pass(tmp_path: Path) -> None:
    assert gap_of(log_of(tmp_path, *STEADY, (106, 105)), 107, first_batch_s=125) == 19_000


def test_pauses_of_earlier_starts_are_no_steady_interval(tmp_path: Path) -> None:
    """A young job: of its two intervals one is the pause of its last restart."""
    directory = log_of(tmp_path, (100, 1), (267, 2), (268, 3))
    mark_begun(directory, 1, is_first=True)
    assert gap_of(directory, 270, first_batch_s=439) == 170_000


def test_only_of_batches_before_the_change_the_steady_interval_is_made(tmp_path: Path) -> None:
    """It had to wait for its cooldown, in which an attempt was restarted and committed a little."""
    directory = log_of(tmp_path, *STEADY, *[(second, second) for second in range(140, 160, 5)])
    assert gap_of(directory, 110, first_batch_s=160) == 34_000


def test_more_batches_than_are_remembered_since_the_change(tmp_path: Path) -> None:
    later = [(second, second) for second in range(140, 180)]
    assert gap_of(log_of(tmp_path, *STEADY, *later), 110, first_batch_s=181) == 34_000


@pytest.mark.parametrize(("noted", "gap_ms"), [(5, 20_000), (4, 3_614_000)])
def test_the_silence_before_a_driver_was_killed_is_not_in_the_gap(
    tmp_path: Path, noted: int, gap_ms: int
) -> None:
    directory = log_of(tmp_path, *STEADY)
    mark_idle(directory, noted)
    assert gap_of(directory, 3_700, first_batch_s=3_720) == gap_ms


def test_input_that_was_planned_ends_the_silence(tmp_path: Path) -> None:
    directory = log_of(tmp_path, *STEADY, planned=(3_600, 106))
    mark_idle(directory, 5)
    assert gap_of(directory, 3_700, first_batch_s=3_720) == 120_000


def test_what_has_lasted_is_known_before_it_is_over() -> None:
    meter = GapMeter(Past((1_000, 2_000, 3_000), None), 3_500)
    assert meter.so_far(23_000) == 19_000
    meter.committed(33_000, at_plan=False)
    assert meter.so_far(33_500) == 29_000
    meter.committed(34_000, at_plan=True)
    assert meter.so_far(99_000) == 29_000 == meter.take()


def test_without_input_a_plan_that_is_not_in_force_everywhere_ends_no_change() -> None:
    meter = GapMeter(Past((), None))
    committed_every_second(meter, 3)
    meter.changing()
    meter.idle(10_000, at_plan=False)
    meter.committed(12_500, at_plan=True)
    assert meter.take() == 2_500

"""What Spark says of the files of a checkpoint, in our words."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.driver.damaged import named
from app.driver.failures import Failure

BEHIND = "; or let the query begin from an empty checkpoint."


@pytest.mark.parametrize(
    ("said", "file", "what"),
    [
        ("Failed to read log file file:/cp/offsets/7. Incomplete log file", "/cp/offsets/7", "empty"),
        (
            "Failed to read log file s3a://b/cp/commits/7. Incomplete log file in the offset commit log",
            "s3a://b/cp/commits/7",
            "empty",
        ),
        (
            "Failed to read log file file:/cp/sources/0/7. [MALFORMED_LOG_FILE] Log file was malformed: failed to read",
            "/cp/sources/0/7",
            "damaged",
        ),
        ("requirement failed: Previous batch 7 not found in offset log", "{}/offsets/7", "missing"),
        ("batch 8 doesn't exist", "{}/sources/0/8", "missing"),
    ],
)
def test_it_is_final_and_names_the_file(tmp_path: Path, said: str, file: str, what: str) -> None:
    for name in ("offsets/8", "sources/0/7.compact"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1, 1))
    failure = named(Failure(f"The job failed: StreamingQueryException: {said}", "stack"), tmp_path)
    told = f"The file {file.format(tmp_path)} of the checkpoint is {what}, so Spark cannot go on from there: "
    assert failure.sentence == f"{told}restore it from a backup{BEHIND}"
    assert (failure.recoverable, failure.by_files, failure.stack) == (False, True, "stack")


def test_what_a_list_of_the_job_has_decided_stays(tmp_path: Path) -> None:
    said = Failure("Failed to read log file /cp/offsets/7. Incomplete log file", "", why="It is tried again.")
    assert named(said, tmp_path).recoverable


@pytest.mark.parametrize(
    "said",
    [
        "Failed to read log file /cp/offsets/7. [INVALID_LOG_VERSION] You need to upgrade.",
        "x",
        "batch 7 doesn't exist",
    ],
)
def test_all_else_stays_as_it_is(tmp_path: Path, said: str) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "7").touch()
    assert named(Failure(said, ""), tmp_path) == Failure(said, "")

"""The file with which a driver is given an attempt."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from app.driver.assignment import read_assignment
from app.driver.failures import DriverError
from app.model.graphdoc import to_document
from app.model.protocol import DriverSpec
from tests.program_graphs import grown_program

GRAPH = grown_program({"name": "job", "script": "job.py"}, ())
SPEC = DriverSpec(
    job_id="0" * 32,
    job_name="job",
    attempt=1,
    epoch=1,
    secret="s",
    address_file="a",
    graph=to_document(GRAPH),
    plan_version=1,
    parallelism={GRAPH.vertices[0].id: 2},
    master="local[2]",
    slots=2,
    held_slots=2,
    checkpoint_dir="c",
    work_dir="w",
    artifacts_dir="f",
    private=("/d",),
)


def test_it_is_read_as_it_was_written_and_fields_of_a_newer_server_are_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "spec.json"
    file.write_text(json.dumps({**asdict(SPEC), "newer": 1}))
    assert read_assignment(file) == (SPEC, GRAPH)


@pytest.mark.parametrize("content", ["", "[1]", "{}", json.dumps({**asdict(SPEC), "slots": "two"})])
def test_what_is_no_assignment_is_refused_with_a_sentence(tmp_path: Path, content: str) -> None:
    file = tmp_path / "spec.json"
    file.write_text(content)
    with pytest.raises(DriverError, match=rf"The file {file} is not an assignment: .+\."):
        read_assignment(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DriverError, match=r"spec\.json cannot be read: No such file or directory"):
        read_assignment(tmp_path / "spec.json")

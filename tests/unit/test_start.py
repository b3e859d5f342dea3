"""What a server refuses at its start, before it serves anybody."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest

from app.main import StartRefused, _claim, _places
from app.settings import load_settings


def test_a_server_does_not_start_without_the_files_of_its_jobs(tmp_path: Path) -> None:
    data, jobs = tmp_path / "data", tmp_path / "jobs"
    settings = load_settings(data_dir=data, jobs_dir=jobs)
    with contextlib.ExitStack() as stack:
        membership = _claim(stack, settings, data, "http://127.0.0.1:1")
        places = _places(settings, membership, "http://127.0.0.1:1", None)
        assert places.checkpoint_dir("0123") == jobs / "0123" / "checkpoint"
        assert places.attempt_dir("0123", 1) == jobs / "0123" / "attempt-1"
        # What drivers lock stays with the data directory.
        assert membership.run_dir == data / "run"
    shutil.rmtree(jobs)
    with contextlib.ExitStack() as stack, pytest.raises(StartRefused, match="Is its file system mounted"):
        _claim(stack, settings, data, "http://127.0.0.1:1")

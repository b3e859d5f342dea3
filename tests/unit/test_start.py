"""What a server refuses at its start, before it serves anybody."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest

from app.main import StartRefused, _claim, _places, _spark_cluster
from app.settings import load_settings
from app.worker.clock import SystemClock


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


def test_a_server_does_not_start_with_a_pod_template_that_drivers_could_not_use(tmp_path: Path) -> None:
    file = tmp_path / "executor.yaml"
    file.write_text("apiVersion: v1\nkind: Pod\nspec: {containers: []}\n")
    settings = load_settings(
        data_dir=tmp_path / "data",
        cluster_kind="kubernetes",
        cluster_master="k8s://http://api.example:6443",
        cluster_namespace="jobs",
        cluster_image="i",
        cluster_slots=3,
        cluster_driver_host="10.0.0.5",
        cluster_pod_template=file,
    )
    with pytest.raises(StartRefused) as error:
        _spark_cluster(settings, SystemClock(), "home")
    assert str(error.value) == (
        f"cluster_pod_template: the file {file} should have a Pod with at least one container (spec.containers): the "
        "first one is the executor's."
    )

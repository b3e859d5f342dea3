"""No source and no sink of a job lies among the server's own files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.documents.graph import parse_document
from app.driver.failures import DriverError
from app.driver.program.document_attempt import DocumentAttempt
from app.main import _places
from app.model.jobgraph import JobGraph
from app.model.protocol import DriverSpec
from app.settings import Settings
from app.worker.job.places import JobPlaces
from app.worker.requests.submission import refused_by_places
from tests.unit.model.documents import COUNTS, FLIGHTS, STORE, changed, document


def graph_onto(path: str) -> JobGraph:
    store = changed(STORE, sink={"format": "sqlite", "path": path, "options": {"table": "t"}})
    return parse_document(document(FLIGHTS, COUNTS, store))


def places(data_dir: Path) -> JobPlaces:
    return JobPlaces(data_dir / "jobs", data_dir / "address", 2, private=(data_dir,))


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    (data_dir / "slotwise.db").touch()
    (tmp_path / "link.db").symlink_to(data_dir / "slotwise.db")
    (tmp_path / "folder").symlink_to(data_dir)
    (data_dir / "out").symlink_to(tmp_path)
    (tmp_path / "far" / "away").mkdir(parents=True)
    # What is above it, the system says in another way than Hadoop.
    (tmp_path / "deep").symlink_to(tmp_path / "far" / "away")
    return data_dir


@pytest.mark.parametrize(
    "path",
    [
        "{tmp}/data/slotwise.db",
        "file://{tmp}/data/slotwise.db",
        "file:{tmp}/data/new/of.db",
        "{tmp}/other/../data/slotwise.db",
        "//{tmp}/data/slotwise.db",
        "{tmp}/deep/../data/slotwise.db",
        "{tmp}/link.db",
        "{tmp}/folder/of.db",
        "{tmp}/data",
        "{tmp}/data/out/x.db",
    ],
)
def test_a_sink_in_the_data_directory_is_refused(data_dir: Path, tmp_path: Path, path: str) -> None:
    made = graph_onto(path.format(tmp=tmp_path))
    [sentence] = refused_by_places(made, places(data_dir))
    assert sentence.startswith("Vertex store: the path ") and sentence.endswith(
        "which jobs may not read or write."
    )


def attempt_of(graph: JobGraph, private: Path) -> DocumentAttempt:
    attempt = DocumentAttempt.__new__(DocumentAttempt)
    attempt._graph = graph
    fields = {field.name: "" for field in dataclasses.fields(DriverSpec)}
    attempt.spec = DriverSpec(**{**fields, "private": (str(private),)})  # type: ignore[arg-type]
    return attempt


@pytest.mark.parametrize(
    "path", ["{tmp}/link.db", "{tmp}/folder/of.db", "{tmp}/folder/../data/x.db", "{tmp}/x/../data"]
)
def test_a_link_that_was_made_since_is_found_by_the_driver(data_dir: Path, tmp_path: Path, path: str) -> None:
    attempt = attempt_of(graph_onto(path.format(tmp=tmp_path)), data_dir)
    with pytest.raises(DriverError, match="which jobs may not read or write") as caught:
        attempt._check_paths()
    assert not caught.value.recoverable


@pytest.mark.parametrize("private", ["data", "folder"])
def test_a_job_of_a_version_that_allowed_the_data_directory_goes_on(
    data_dir: Path, tmp_path: Path, private: str
) -> None:
    """Today such a path is refused at submission, whatever links there are: a stored job that has it is older."""
    for path in (f"{data_dir}/slotwise.db", f"file://{data_dir}/flights.db", f"{data_dir}/out/x.db"):
        graph = graph_onto(path)
        assert len(refused_by_places(graph, places(tmp_path / private))) == 1
        attempt_of(graph, tmp_path / private)._check_paths()


@pytest.mark.parametrize("option", ["path", "url"])
def test_a_source_that_has_its_path_in_an_option_is_refused(data_dir: Path, option: str) -> None:
    url = f"jdbc:sqlite:{data_dir}/slotwise.db" if option == "url" else f"{data_dir}/jobs"
    source = changed(FLIGHTS, source={"format": "own", "options": {option: url}})
    made = parse_document(document(source, COUNTS, STORE))
    assert len(refused_by_places(made, places(data_dir))) == 1


def test_a_neighbour_of_the_data_directory_is_not(data_dir: Path, tmp_path: Path) -> None:
    for path in (f"{tmp_path}/data.db", f"{tmp_path}/database/x.db", f"{tmp_path}/data/../x.db"):
        assert refused_by_places(graph_onto(path), places(data_dir)) == []


def test_a_server_keeps_jobs_out_of_its_data_directory(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "data", jobs_dir=tmp_path / "jobs")
    membership = SimpleNamespace(
        data_dir=tmp_path / "data",
        run_dir=tmp_path / "data" / "run",
        is_shared=False,
        task_manager="host",
        home="home",
    )
    made = _places(settings, membership, "http://127.0.0.1:1", None)  # type: ignore[arg-type]
    assert set(made.private) == {tmp_path / "data", tmp_path / "jobs"}

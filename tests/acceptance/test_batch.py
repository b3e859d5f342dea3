"""Batch jobs with real processes: to the answer, with kills and deleted results on the way; more jobs than slots."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.documents.graph import parse_document
from app.model.batch_regions import regions_of
from tests.acceptance.deployment import ROOT, SLOTS, Deployment, deployed, is_alive, wait_for
from tests.tpch import answers, generate, graphs

pytestmark = pytest.mark.timeout(600)

GATES = ROOT / "tests/acceptance/gates.py"
ENDED = ("FINISHED", "FAILED", "CANCELED")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tpch")
    generate("0.01", directory)
    return directory


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("batch"), points_in_drivers=True) as made:
        yield made


@pytest.fixture
def deployment(shared: Deployment) -> Deployment:
    """With a server, without tickets and without jobs that run, whatever the test before left."""
    if shared.server is None:
        shared.start(with_points=True)

    def running() -> list[str]:
        return [one["id"] for one in shared.get("/jobs")["jobs"] if one["status"] not in ENDED]

    for job_id in running():
        shared.call("PATCH", f"/jobs/{job_id}?mode=cancel")
    wait_for("every job has ended", lambda: not running())
    for left in shared.kills.directory.iterdir():
        left.unlink()
    return shared


def submitted(deployment: Deployment, document: dict[str, Any]) -> None:
    gated = "artifacts" in document
    files = {
        "graph": ("graph.json", json.dumps(document).encode(), "application/json"),
        "files": (GATES.name, GATES.read_bytes(), "application/octet-stream"),
    }
    response = deployment.call("POST", "/jobs", **({"files": files} if gated else {"json": document}))
    assert response.is_success, response.text
    deployment.job_id = response.json()["jobid"]


def progress_of(deployment: Deployment) -> dict[str, Any]:
    """What is durable of the regions and results of the job; empty before it runs."""
    ((text,),) = deployment.query("SELECT state FROM job_states WHERE job_id = ?", deployment.job_id)
    return json.loads(text)["batch"] or {}


def finished_regions(deployment: Deployment) -> list[tuple[str, int]]:
    """Status and number of runs of each region."""
    return [(one["status"], one["run"]) for one in progress_of(deployment).get("regions", ())]


def runs(deployment: Deployment, document: dict[str, Any], *vertices: str) -> dict[str, tuple[str, int]]:
    """Status and number of runs of the regions of ``vertices``."""
    graph, found = parse_document(document), finished_regions(deployment)
    regions = regions_of(graph).by_vertex
    return {name: found[regions[graph.by_name[name].id].number] for name in vertices} if found else {}


def gated(document: dict[str, Any], **gates: str) -> dict[str, Any]:
    """``document`` with a gate (of `tests.acceptance.gates`) in the place of each vertex that ``gates`` names.

    The gate reads the vertex, now called `its_<name>`, as the vertex's reader did, so it is in the reader's region.
    """
    edges = {name: f"its_{name}" for name in gates}
    vertices = []
    for vertex in document["vertices"]:
        inputs = []
        for edge in vertex.get("inputs", ()):
            name = edge if isinstance(edge, str) else edge["vertex"]
            if name in gates and not isinstance(edge, str):
                edges[name] = {**edge, "vertex": f"its_{name}"}
                edge = name
            inputs.append(edge)
        vertices.append({**vertex, "inputs": inputs} if inputs else vertex)
    placed = []
    for vertex in vertices:
        name = vertex["name"]
        if name in gates:
            placed.append({**vertex, "name": f"its_{name}"})
            bounds = {key: vertex[key] for key in ("parallelism", "lowerBound") if key in vertex}
            placed.append({"name": name, "inputs": [edges[name]], "python": f"gates:{gates[name]}", **bounds})
        else:
            placed.append(vertex)
    return {**document, "artifacts": [GATES.name], "vertices": placed}


def let_pass(deployment: Deployment, gate: str) -> None:
    """Let one run pass ``gate``, now or when it gets there; another one before it has done so."""
    ticket = deployment.kills.directory / f"ticket-{gate}"
    wait_for(f"the ticket before for the gate {gate} is taken", lambda: not ticket.exists())
    ticket.touch()


def delete_result(deployment: Deployment, document: dict[str, Any], producer: str) -> None:
    """By hand, as an operator who is short of space."""
    vertex_id = parse_document(document).by_name[producer].id
    (path,) = (
        one["path"] for one in progress_of(deployment)["results"] if one["dataset"].startswith(vertex_id)
    )
    shutil.rmtree(path)


def held_in_the_middle(deployment: Deployment, data: Path, out: Path) -> dict[str, Any]:
    """Submit TPC-H's query 9 in four regions, and wait until the third is held; its document.

    `green` and `years` are finished, `amounts` runs and has not read `green` yet, `result` waits for it. It will be
    held too, before it reads `amounts`.
    """
    config = {"restart-strategy.exponential-delay.initial-backoff": "1 ms"}
    document = gated(graphs.document("q9", data, out, upper=4, config=config), nation="first", years="second")
    submitted(deployment, document)
    wanted = {
        "green": ("FINISHED", 1),
        "its_years": ("FINISHED", 1),
        "amounts": ("RUNNING", 1),
        "result": ("CREATED", 0),
    }
    wait_for("two regions are finished", lambda: runs(deployment, document, *wanted) == wanted)
    wait_for("the third is held", lambda: deployment.kills.held("first"))
    return document


@pytest.mark.long
def test_a_job_ends_with_the_right_answer(deployment: Deployment, data: Path, tmp_path: Path) -> None:
    config = {
        "slotwise.batch.parallelism-decider": "even-data",
        "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task": "16 kb",
    }
    submitted(deployment, graphs.document("q5", data, tmp_path / "out", upper=8, config=config))
    deployment.await_status("FINISHED")
    assert answers.found(tmp_path / "out") == answers.expected("q5", data)
    assert {run for _, run in finished_regions(deployment)} == {1}, "nothing ran twice"
    results = deployment.data_dir / "jobs" / deployment.job_id / "results"
    wait_for("no result is left", lambda: not any(results.glob("*/*")))


@pytest.mark.long
def test_a_killed_driver_costs_no_finished_region(deployment: Deployment, data: Path, tmp_path: Path) -> None:
    submitted(deployment, graphs.document("q9", data, tmp_path / "out", upper=4))
    wait_for("a region is finished", lambda: ("FINISHED", 1) in finished_regions(deployment))
    os.kill(int(deployment.job()["driverPid"]), signal.SIGKILL)
    before = finished_regions(deployment)
    deployment.await_status("FINISHED")
    assert answers.found(tmp_path / "out") == answers.expected("q9", data)
    for (status, run), (_, run_after) in zip(before, finished_regions(deployment), strict=True):
        assert status != "FINISHED" or run_after == run, "a finished region ran again"


# Counted over all regions: the third result is made of another one, and the fourth region has the sink.
@pytest.mark.parametrize(
    ("point", "hit"),
    [
        pytest.param("result-unnamed", 3, marks=pytest.mark.long),
        ("result-written", 3),
        pytest.param("region-sink-written", 1, marks=pytest.mark.long),
        pytest.param("region-done", 4, marks=pytest.mark.long),
    ],
)
def test_a_driver_killed_between_what_a_region_writes_and_its_report(
    deployment: Deployment, data: Path, tmp_path: Path, point: str, hit: int
) -> None:
    config = {"restart-strategy.exponential-delay.initial-backoff": "1 ms"}
    document = graphs.document("q9", data, tmp_path / "out", upper=4, config=config)
    deployment.kills.arm(point, hit)
    submitted(deployment, document)
    deployment.await_status("FINISHED")
    assert deployment.kills.fired(point)
    assert answers.found(tmp_path / "out") == answers.expected("q9", data), (
        "nothing is missing or there twice"
    )
    assert deployment.job()["attempt"] == 2
    interrupted = "amounts" if point.startswith("result-") else "result"
    found = runs(deployment, document, "green", interrupted)
    assert found == {"green": ("FINISHED", 1), interrupted: ("FINISHED", 2)}
    results = deployment.data_dir / "jobs" / deployment.job_id / "results"
    wait_for("no result is left", lambda: not any(results.glob("*/*")))


def test_server_and_driver_killed_cost_no_finished_region(
    deployment: Deployment, data: Path, tmp_path: Path
) -> None:
    document = held_in_the_middle(deployment, data, tmp_path / "out")
    pid = int(deployment.job()["driverPid"])
    os.kill(pid, signal.SIGKILL)
    deployment.kill_server()
    wait_for("the driver is dead", lambda: not is_alive(pid))
    let_pass(deployment, "first")
    let_pass(deployment, "second")
    deployment.start(with_points=True)
    deployment.await_status("FINISHED")
    assert answers.found(tmp_path / "out") == answers.expected("q9", data)
    assert runs(deployment, document, "green", "its_years", "amounts", "result") == {
        "green": ("FINISHED", 1),
        "its_years": ("FINISHED", 1),
        "amounts": ("FINISHED", 2),
        "result": ("FINISHED", 1),
    }
    assert deployment.job()["attempt"] == 2


def test_a_deleted_result_is_made_again_by_its_producers_alone(
    deployment: Deployment, data: Path, tmp_path: Path
) -> None:
    document = held_in_the_middle(deployment, data, tmp_path / "out")
    delete_result(deployment, document, "green")
    let_pass(deployment, "first")
    # The next run of `amounts`, on the new result.
    let_pass(deployment, "first")
    wait_for("the last region is held", lambda: deployment.kills.held("second"))
    assert runs(deployment, document, "green", "its_years", "amounts", "result") == {
        "green": ("FINISHED", 2),
        "its_years": ("FINISHED", 1),
        "amounts": ("FINISHED", 2),
        "result": ("RUNNING", 1),
    }

    delete_result(deployment, document, "amounts")
    let_pass(deployment, "second")
    # What `green` left was given up when `amounts` had read it, so both are needed again.
    let_pass(deployment, "first")
    let_pass(deployment, "second")
    deployment.await_status("FINISHED")
    assert answers.found(tmp_path / "out") == answers.expected("q9", data)
    assert runs(deployment, document, "green", "its_years", "amounts", "result") == {
        "green": ("FINISHED", 3),
        "its_years": ("FINISHED", 1),
        "amounts": ("FINISHED", 3),
        "result": ("FINISHED", 2),
    }
    assert deployment.job()["attempt"] == 1, "the driver went on"


class Crowd:
    """Jobs that share the slots, by name."""

    def __init__(self, deployment: Deployment, data: Path, directory: Path) -> None:
        self.deployment = deployment
        self.data = data
        self.directory = directory
        self.ids: dict[str, str] = {}
        self.queries: dict[str, str] = {}

    def submit(self, name: str, query: str, *, slots: int, **gates: str) -> None:
        """A job that needs ``slots`` slots and wants no more."""
        document = graphs.document(query, self.data, self.directory / name, upper=slots)
        for vertex in document["vertices"]:
            vertex["lowerBound"] = slots
        submitted(self.deployment, gated(document, **gates) if gates else document)
        self.ids[name], self.queries[name] = self.deployment.job_id, query

    def slots(self) -> dict[str, int]:
        """How many slots each job holds at this moment, which are never more than there are."""
        names = {job_id: name for name, job_id in self.ids.items()}
        states = {
            names[job_id]: json.loads(text)
            for job_id, text in self.deployment.query("SELECT job_id, state FROM job_states")
            if job_id in names
        }
        held = [slot["id"] for state in states.values() for slot in state["slots"]]
        assert len(set(held)) == len(held) <= SLOTS, held
        return {name: len(states[name]["slots"]) for name in self.ids}

    def status(self, name: str) -> str:
        return str(self.deployment.get(f"/jobs/{self.ids[name]}")["state"])

    def await_end(self, name: str) -> None:
        def ended() -> bool:
            self.slots()
            found = self.status(name)
            assert found == "FINISHED" or found not in ENDED, self.deployment.log_end()
            return found == "FINISHED"

        wait_for(f"{name} ends", ended)
        assert answers.found(self.directory / name) == answers.expected(self.queries[name], self.data)


@pytest.mark.long
def test_three_jobs_share_four_slots(deployment: Deployment, data: Path, tmp_path: Path) -> None:
    crowd = Crowd(deployment, data, tmp_path)
    crowd.submit("one", "q1", slots=2, lineitem="first")
    crowd.submit("two", "q3", slots=2, orders="second")
    for gate in ("first", "second"):
        wait_for(f"the job with the gate {gate} is held", lambda gate=gate: deployment.kills.held(gate))
    crowd.submit("three", "q1", slots=3)
    assert crowd.slots() == {"one": 2, "two": 2, "three": 0}

    let_pass(deployment, "first")
    crowd.await_end("one")
    # Two are free, and it needs three: it takes none of them meanwhile, so that another job could have them.
    wait_for("the slots are given back", lambda: crowd.slots() == {"one": 0, "two": 2, "three": 0})
    assert crowd.status("three") == "CREATED"
    let_pass(deployment, "second")
    crowd.await_end("two")
    crowd.await_end("three")

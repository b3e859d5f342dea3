"""`slotwise autoscale`, against a job in virtual time behind a fake server."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console

from app.api.mark import MARK
from app.autoscaler.decide import decide
from app.autoscaler.loop import Refusal, Turn
from app.autoscaler.policy import Policy
from app.cli import autoscale
from app.cli.autoscale import figures_line, render, turn_as_json
from app.cli.client import Client
from app.model.scaling_policy import FloorCeiling
from tests.unit.autoscaler.jobs import LOAD, snapshot, vertex
from tests.unit.autoscaler.model_job import START_MS, VERTEX, ModelJob

JOB_ID = "0123456789abcdef0123456789abcdef"
TURNS = 3


@pytest.fixture
def job(fake: Any) -> ModelJob:
    """One that needs more than its one task, and ends after some turns."""
    model = ModelJob(lambda _: 100)
    model.run_to(START_MS + 300_000)
    turns = [0]

    def asked(request: Any) -> tuple[int, Any, dict[str, str]]:
        path = request.path.replace(JOB_ID, "job")
        if path == "/jobs/job":
            turns[0] += 1
            # The first look is at the names of the vertices.
            model.status = "FINISHED" if turns[0] > 1 + TURNS else "RUNNING"
        answer, etag = model.get(f"{path}?get={request.query.get('get', '')}")
        if path == "/jobs/job":
            answer["jid"] = JOB_ID
        return 200, answer, {} if etag is None else {"ETag": etag}

    def declared(request: Any) -> tuple[int, Any, dict[str, str]]:
        model.put(
            "/jobs/job/resource-requirements", request.json, if_match=request.headers["if-match"], reason=""
        )
        return 200, {}, {"ETag": f'"{model.version}"'}

    for path in (
        "",
        "/resource-requirements",
        "/explanation",
        "/scaling-policy",
        "/load",
        "/metrics",
        "/rescales/history",
        f"/vertices/{VERTEX}/subtasks/metrics",
    ):
        fake.routes["GET", f"/jobs/{JOB_ID}{path}"] = asked
    fake.routes["GET", "/overview"] = asked
    fake.routes["PUT", f"/jobs/{JOB_ID}/resource-requirements"] = declared
    return model


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text("interval: 100 ms\n")
    return path


def run(slotwise: Any, *arguments: str) -> Any:
    return slotwise("autoscale", "delays", *arguments)


def test_it_declares_what_it_decides_until_the_job_ends(
    slotwise: Any, fake: Any, job: ModelJob, policy: Path
) -> None:
    done = run(slotwise, "--policy", str(policy))
    assert done.status == 0
    (put,) = fake.sent("PUT", f"/jobs/{JOB_ID}/resource-requirements")
    assert put.headers["if-match"] == '"1"' and put.headers["x-slotwise-reason"].startswith("autoscaler: ")
    assert put.json[VERTEX]["parallelism"]["lowerBound"] == 1 and job.upper > 1
    lines = done.out.splitlines()
    assert "at most so many tasks of slow from 1 to" in lines[0]
    assert lines[-1].endswith("The job is FINISHED.")


def test_recommend_only_declares_nothing(slotwise: Any, fake: Any, job: ModelJob, policy: Path) -> None:
    done = run(slotwise, "--policy", str(policy), "--recommend-only", "--json")
    turns = [json.loads(line) for line in done.out.splitlines()]
    assert [turn.get("action") for turn in turns] == ["RECOMMEND"] * TURNS + [None]
    assert all(turn["declared"] is False for turn in turns)
    assert turns[0]["vertices"][VERTEX]["recommended"] == turns[0]["upper"][VERTEX] > 1
    assert turns[-1]["ended"] == "FINISHED"
    assert fake.sent("PUT", f"/jobs/{JOB_ID}/resource-requirements") == []


def test_a_wrong_policy_is_refused_before_anything_is_asked(slotwise: Any, fake: Any, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("catchup: 3\n")
    done = run(slotwise, "--policy", str(path))
    assert done.status == 2 and "catchup: is not a field of a policy. Did you mean 'catchUp'?" in done.err
    assert fake.requests == []
    done = run(slotwise, "--policy", str(tmp_path / "none.yaml"))
    assert done.status == 2 and "The policy" in done.err and "cannot be read" in done.err


def test_limits_of_a_vertex_that_is_not_there_are_refused(slotwise: Any, fake: Any, tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps({"vertices": {"stores": {"max": 1}}}))
    done = run(slotwise, "--policy", str(path))
    assert done.status == 2
    assert "'stores', which is not a vertex of the job; its vertices are delays, flights, store." in done.err


def test_batch_jobs_are_refused(slotwise: Any, fake: Any) -> None:
    answer = fake.routes["GET", f"/jobs/{JOB_ID}"](None)[1]
    fake.on("GET", f"/jobs/{JOB_ID}", (200, {**answer, "job-type": "BATCH"}))
    done = run(slotwise)
    assert done.status == 1 and "The job is of type BATCH" in done.err


def test_a_token_that_is_missing_ends_it(slotwise: Any, fake: Any) -> None:
    answer = fake.routes["GET", f"/jobs/{JOB_ID}"](None)
    fake.on("GET", f"/jobs/{JOB_ID}", answer, (401, {"errors": ["No."]}))
    done = run(slotwise)
    assert done.status == 1 and "No. Set SLOTWISE_TOKEN" in done.err


def test_a_put_is_not_repeated(slotwise: Any, fake: Any, job: ModelJob, policy: Path) -> None:
    """Whether one that was answered 503 was carried out is not known: the loop looks again."""
    fake.on(
        "PUT", f"/jobs/{JOB_ID}/resource-requirements", (503, {"errors": ["Not now."]}, {"Retry-After": "0"})
    )
    done = run(slotwise, "--policy", str(policy))
    looks = fake.sent("GET", f"/jobs/{JOB_ID}/resource-requirements")
    assert len(fake.sent("PUT", f"/jobs/{JOB_ID}/resource-requirements")) == len(looks) == TURNS
    assert "Not now. The next try is in 200 ms." in done.out


@pytest.mark.parametrize(
    ("headers", "status"), [({}, None), ({MARK: "v1"}, 404)], ids=["a proxy", "Slotwise"]
)
def test_only_a_server_of_ours_says_that_there_is_no_such_job(
    headers: dict[str, str], status: int | None
) -> None:
    """While it is away, a proxy before it may say 404: that is waited out."""
    answer = httpx.Response(404, headers=headers, json={"errors": ["Nothing here."]})
    client = Client("http://job", transport=httpx.MockTransport(lambda _: answer))
    with pytest.raises(Refusal) as refused:
        autoscale._Server(client).get("/jobs/x")
    assert refused.value.status == status


def test_the_live_view_has_figures_decision_and_what_was_done() -> None:
    seen = snapshot(vertex(busy_ms=900.0))
    turn = Turn(10_000, seen, decide(seen, Policy()), has_declared=True)
    console = Console(width=150, record=True, file=io.StringIO())
    console.print(render(turn, ["12:00:00  something else"]))
    text = console.export_text()
    assert "RUNNING  100 records/s  backlog 0  needs 91 % of the time, 61 % as recommended" in text
    assert "slow" in text and "at most so many tasks of slow from 2 to 3" in text and "something else" in text


def test_the_operator_s_limits_are_shown_where_there_are_some() -> None:
    seen = snapshot(vertex(busy_ms=900.0, operator=FloorCeiling(ceiling=2)))
    turn = Turn(10_000, seen, decide(seen, Policy()))
    console = Console(width=150, record=True, file=io.StringIO())
    console.print(render(turn, []))
    text = " ".join(console.export_text().split())
    assert "longest task floor ceiling" in text and "90 % 90 % - 2 " in text
    assert "The operator's ceiling holds slow at 2: without it, 3 would be recommended." in text
    assert turn_as_json(turn)["vertices"]["slow"]["ceiling"] == 2


def test_a_turn_without_an_answer_says_when_the_next_is() -> None:
    turn = Turn(20_000, trouble="No.")
    assert autoscale.words_of(turn) == "No. The next try is in 20.0 s."
    assert turn_as_json(turn)["trouble"] == "No."


def test_a_backlog_that_is_not_known_is_left_out() -> None:
    seen = snapshot(load=replace(LOAD, backlog_rows=None))
    assert "backlog" not in figures_line(seen, decide(seen, Policy()))

"""The commands against the small server: what they send, what they print, and how they end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.cli import submit
from app.cli.errors import UsageError
from app.cli.require import parse_partitions
from app.model.ids import vertex_id
from tests.unit.cli.conftest import details

Run = Callable[..., Any]
JOB_ID = "0123456789abcdef0123456789abcdef"
REQUIREMENTS = f"/jobs/{JOB_ID}/resource-requirements"
DELAYS = vertex_id("delays", "delays")

GRAPH = """
name: delays
type: STREAMING
artifacts: [functions.py]
vertices:
  - {name: flights, source: {format: csv, path: in/, schema: a INT}}
  - {name: store, inputs: [flights], sink: {format: parquet, path: "/abs/out", outputMode: append}}
"""
SMALL = GRAPH.replace("artifacts: [functions.py]\n", "")


def test_jobs_lists_newest_first_without_control_codes(slotwise: Run, fake: Any) -> None:
    outcome = slotwise("jobs")
    assert outcome.status == 0
    assert [line.split()[1] for line in outcome.out.splitlines()] == ["name", "other", "delays"]
    assert "\x1b" not in outcome.out


def test_show_prints_bounds_and_parallelism_per_vertex(slotwise: Run, fake: Any) -> None:
    outcome = slotwise("show", "delays")
    row = next(
        line.split()
        for line in outcome.out.splitlines()
        if line.startswith("delays  1"[:6]) and DELAYS in line
    )
    assert row == ["delays", "1", "2", "1", "8", "RUNNING", DELAYS]


def test_show_has_the_last_bounds_of_a_job_that_has_ended(slotwise: Run, fake: Any) -> None:
    ended = details("FINISHED")
    fake.on("GET", f"/jobs/{JOB_ID}", (200, {**ended, "end-time": ended["start-time"] + 60_000}))
    fake.on("GET", REQUIREMENTS, (409, {"errors": ["The job has ended."]}))
    told = {vertex["id"]: {"lowerBound": 3, "upperBound": 5} for vertex in ended["vertices"]}
    fake.on("GET", f"/jobs/{JOB_ID}/explanation", (200, {"vertices": told}))
    (row,) = [line.split() for line in slotwise("show", "delays").out.splitlines() if DELAYS in line]
    assert row == ["delays", "3", "5", "1", "8", "FINISHED", DELAYS]


def test_show_prints_how_far_the_regions_of_a_batch_job_are(slotwise: Run, batch: Any) -> None:
    lines = slotwise("show", "delays").out.splitlines()
    headers, *rows = (line.split() for line in lines[-4:])
    assert headers == ["vertex", "lower", "upper", "parallelism", "max", "state", "done", "rest", "id"]
    assert [row[5:-1] for row in rows] == [
        ["FINISHED", "100", "%", "-"],
        ["RUNNING", "30", "%", "8.1", "s"],
        ["CREATED", "-", "-"],
    ]
    assert slotwise("show", "delays", "--json").json["vertices"][1]["progress"]["tasksDone"] == 12


def test_submit_sends_the_graph_with_absolute_paths_and_its_artifacts(
    slotwise: Run, fake: Any, tmp_path: Path
) -> None:
    (tmp_path / "g.yaml").write_text(GRAPH)
    (tmp_path / "functions.py").write_text("def f(x): return x\n")
    fake.on("POST", "/jobs", (202, {"jobid": JOB_ID, "jobUrl": f"/jobs/{JOB_ID}"}))
    outcome = slotwise("submit", str(tmp_path / "g.yaml"))
    assert (outcome.status, outcome.out) == (0, JOB_ID + "\n")
    (sent,) = fake.sent("POST", "/jobs")
    assert sent.headers["content-type"].startswith("multipart/form-data")
    assert b'name="graph"' in sent.body
    assert b'filename="functions.py"' in sent.body
    assert b"def f(x): return x" in sent.body
    assert json.dumps(f"{tmp_path}/in/").encode() in sent.body
    assert b'"/abs/out"' in sent.body


def test_submit_without_artifacts_sends_json(slotwise: Run, fake: Any, tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text(SMALL)
    document = submit.read_graph(tmp_path / "g.yaml")
    (tmp_path / "g.json").write_text(json.dumps(document))
    fake.on("POST", "/jobs", (202, {"jobid": JOB_ID, "jobUrl": ""}))
    assert slotwise("submit", str(tmp_path / "g.json")).status == 0
    assert fake.sent("POST", "/jobs")[0].json == document


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("name: [", "The YAML is not valid in line 2"),
        ("a: 1\nb: 2\na: 3", "line 3, column 1: the key 'a' is written twice"),
        (
            "name: x\nconfig: {spark.x: yes}",
            "line 2, column 19: 'yes' without quotes is a boolean to some readers",
        ),
        ("- 1", "should be a mapping"),
        ("", "is empty"),
        ("x" * 2_000_000, "is too large"),
        ("artifacts: [missing.py]", "missing.py cannot be read: No such file or directory."),
    ],
)
def test_a_graph_file_that_cannot_be_used_is_refused_before_the_server_is_asked(
    slotwise: Run, fake: Any, tmp_path: Path, text: str, sentence: str
) -> None:
    (tmp_path / "g.yaml").write_text(text)
    outcome = slotwise("submit", str(tmp_path / "g.yaml"))
    assert outcome.status == 2
    assert sentence in outcome.err
    assert fake.requests == []


def test_all_errors_of_a_graph_are_printed_at_once_and_no_server_is_needed(
    slotwise: Run, fake: Any, tmp_path: Path
) -> None:
    of_form = GRAPH.replace("STREAMING", "STREAM").replace("format: parquet", "formt: parquet")
    of_rules = GRAPH.replace("[flights]", "[fligths]") + "config: {spork.x: 1}"
    expected = {of_form: ["type", "vertices[1].sink.formt"], of_rules: ["config", "vertices[1].inputs[0]"]}
    for text, places in expected.items():
        (tmp_path / "g.yaml").write_text(text)
        outcome = slotwise("submit", str(tmp_path / "g.yaml"))
        assert (outcome.status, outcome.out, fake.requests) == (2, "", [])
        first, *errors = outcome.err.splitlines()
        assert first == f"The graph {tmp_path / 'g.yaml'} has 3 errors; nothing was sent."
        missing = f"The file {tmp_path}/functions.py cannot be read"
        assert [error.split(":")[0] for error in errors] == [*places, missing]
        assert "Did you mean '" in errors[1]


def test_what_the_server_refuses_is_printed(slotwise: Run, fake: Any, tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text(SMALL)
    fake.on("POST", "/jobs", (400, {"errors": ["The first.", "The second."]}))
    outcome = slotwise("submit", str(tmp_path / "g.yaml"))
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err.splitlines() == ["The first.", "The second."]


def test_a_graph_is_read_as_the_server_reads_it(tmp_path: Path) -> None:
    config = "config: {spark.since: 2013-01-01, spark.version: 4.10, spark.octal: 010, spark.flag: true}\n"
    (tmp_path / "g.yaml").write_text(config + SMALL)
    assert submit.read_graph(tmp_path / "g.yaml")["config"] == {
        "spark.since": "2013-01-01",
        "spark.version": 4.1,
        "spark.octal": "010",
        "spark.flag": True,
    }


def test_a_json_graph_is_read_as_json_with_the_place_of_an_error(
    slotwise: Run, fake: Any, tmp_path: Path
) -> None:
    (tmp_path / "g.json").write_text('{"name": "x",\n name: "y"}')
    outcome = slotwise("submit", str(tmp_path / "g.json"))
    assert outcome.status == 2
    assert "The JSON is not valid in line 2" in outcome.err


def test_a_graph_that_is_a_folder_or_missing_is_a_sentence(slotwise: Run, fake: Any, tmp_path: Path) -> None:
    assert slotwise("submit", str(tmp_path)).err == f"The graph {tmp_path} cannot be read: Is a directory.\n"
    assert "No such file" in slotwise("submit", str(tmp_path / "nope.yaml")).err


def test_a_home_that_does_not_exist_is_a_part_of_the_path(tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text(SMALL.replace("path: in/", "path: ~nobody-at-all/in"))
    document = submit.read_graph(tmp_path / "g.yaml")
    assert document["vertices"][0]["source"]["path"] == str(tmp_path / "~nobody-at-all" / "in")


def test_an_artifact_outside_the_folder_is_not_read(slotwise: Run, fake: Any, tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text(GRAPH.replace("functions.py", "/etc/hostname"))
    outcome = slotwise("submit", str(tmp_path / "g.yaml"))
    assert (outcome.status, fake.requests) == (2, [])
    assert "artifacts[0]: should be the name of a file beside the graph" in outcome.err


def test_submit_wait_tells_why_a_job_failed(slotwise: Run, fake: Any, tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text(SMALL)
    fake.on("POST", "/jobs", (202, {"jobid": JOB_ID, "jobUrl": ""}))
    fake.on("GET", f"/jobs/{JOB_ID}", (200, details("CREATED")), (200, details("FAILED")))
    fake.on("GET", f"/jobs/{JOB_ID}/explanation", (200, {"sentences": ["It is being started."]}))
    entry = {"timestamp": 1, "exceptionName": "E", "stacktrace": "No such table.\n  at x", "taskName": None}
    fake.on(
        "GET",
        f"/jobs/{JOB_ID}/exceptions",
        (200, {"exceptionHistory": {"entries": [entry], "truncated": False}}),
    )
    outcome = slotwise("submit", "--wait", str(tmp_path / "g.yaml"))
    assert outcome.status == 1
    assert outcome.out == ""
    assert outcome.err.splitlines() == [
        "CREATED ...",
        "  It is being started.",
        f"The job {JOB_ID} ended as FAILED: No such table.",
    ]
    outcome = slotwise("submit", "--wait", "--json", str(tmp_path / "g.yaml"))
    assert (outcome.status, outcome.json["state"]) == (1, "FAILED")


def test_require_keeps_the_bounds_that_are_not_named(slotwise: Run, fake: Any) -> None:
    fake.on("PUT", REQUIREMENTS, (200, {}, {"ETag": '"2"'}))
    outcome = slotwise("require", "delays", "delays=2:4", "store=:3", "--reason", "more flights")
    assert (outcome.status, outcome.out) == (0, "Accepted as version 2.\n")
    (sent,) = fake.sent("PUT", REQUIREMENTS)
    declared = {
        name: sent.json[vertex_id("delays", name)]["parallelism"] for name in ("flights", "delays", "store")
    }
    assert declared == {
        "flights": {"lowerBound": 1, "upperBound": 2},
        "delays": {"lowerBound": 2, "upperBound": 4},
        "store": {"lowerBound": 1, "upperBound": 3},
    }
    assert sent.headers["if-match"] == '"1"'
    assert sent.headers["x-slotwise-reason"] == "more flights"


def test_require_reads_again_when_someone_else_was_faster(slotwise: Run, fake: Any) -> None:
    first = {DELAYS: {"parallelism": {"lowerBound": 1, "upperBound": 2}}}
    second = {DELAYS: {"parallelism": {"lowerBound": 2, "upperBound": 7}}}
    fake.on("GET", REQUIREMENTS, (200, first, {"ETag": '"1"'}), (200, second, {"ETag": '"2"'}))
    fake.on("PUT", REQUIREMENTS, (412, {"errors": ["Stale."]}), (200, {}, {"ETag": '"3"'}))
    assert slotwise("require", "delays", "delays=:8").status == 0
    one, two = fake.sent("PUT", REQUIREMENTS)
    assert one.headers["if-match"] == '"1"'
    assert two.headers["if-match"] == '"2"'
    assert two.json == {DELAYS: {"parallelism": {"lowerBound": 2, "upperBound": 8}}}


def test_require_gives_up_after_some_stale_answers(slotwise: Run, fake: Any) -> None:
    fake.on("PUT", REQUIREMENTS, (412, {"errors": ["The version is stale."]}))
    outcome = slotwise("require", "delays", "delays=:8")
    assert (outcome.status, outcome.err) == (1, "The version is stale.\n")
    assert len(fake.sent("PUT", REQUIREMENTS)) == 5


def test_require_of_equal_bounds_says_that_nothing_changed(slotwise: Run, fake: Any) -> None:
    fake.on("PUT", REQUIREMENTS, (200, {}, {"ETag": '"1"'}))
    outcome = slotwise("require", "delays", "delays=1:2")
    assert outcome.out == "The bounds are these already (version 1); nothing changed.\n"


@pytest.mark.parametrize(
    "text", ["delays", "delays=", "delays=:", "delays=1", "delays=a:b", "=1:2", "delays=1:2:3"]
)
def test_require_refuses_what_is_not_bounds(slotwise: Run, fake: Any, text: str) -> None:
    outcome = slotwise("require", "delays", text)
    assert outcome.status == 2
    assert f"{text!r} is not VERTEX=LOWER:UPPER" in outcome.err
    assert fake.requests == []


def test_require_names_the_vertices_that_exist(slotwise: Run, fake: Any) -> None:
    outcome = slotwise("require", "delays", "nope=1:2")
    assert outcome.status == 1
    assert outcome.err == "'nope' is not a vertex of the job; its vertices are flights, delays, store.\n"
    assert fake.sent("PUT", REQUIREMENTS) == []


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_require_says_that_a_program_has_no_vertices_yet(
    slotwise: Run, fake: Any, options: list[str]
) -> None:
    fake.on("GET", REQUIREMENTS, (200, {}, {"ETag": '"1"'}))
    outcome = slotwise("require", "delays", "aggregate=1:2", *options)
    assert outcome.status == 1
    assert outcome.err.startswith("The program has not started a query yet, so it has no vertices.")
    assert fake.sent("PUT", REQUIREMENTS) == []


def test_cancel_wait_fails_when_the_job_ended_otherwise(slotwise: Run, fake: Any) -> None:
    fake.on("PATCH", f"/jobs/{JOB_ID}", (202, {}))
    fake.on("GET", f"/jobs/{JOB_ID}/status", (200, {"status": "CANCELLING"}), (200, {"status": "FINISHED"}))
    outcome = slotwise("cancel", "--wait", "delays")
    assert outcome.status == 1
    assert fake.sent("PATCH", f"/jobs/{JOB_ID}")[0].query == {"mode": "cancel"}


def test_stop_wait_prints_the_checkpoint(slotwise: Run, fake: Any) -> None:
    fake.on("POST", f"/jobs/{JOB_ID}/stop", (202, {"request-id": "f" * 32}))
    done = {"status": {"id": "COMPLETED"}, "operation": {"location": "/data/ckpt"}}
    path = f"/jobs/{JOB_ID}/savepoints/{'f' * 32}"
    fake.on("GET", path, (200, {"status": {"id": "IN_PROGRESS"}, "operation": None}), (200, done))
    fake.on("GET", f"/jobs/{JOB_ID}/status", (200, {"status": "FINISHED"}))
    outcome = slotwise("stop", "--wait", "delays")
    assert (outcome.status, outcome.out) == (0, f"{JOB_ID} is FINISHED; checkpoint: /data/ckpt\n")


def test_a_stop_that_failed_ends_with_1(slotwise: Run, fake: Any) -> None:
    fake.on("POST", f"/jobs/{JOB_ID}/stop", (202, {"request-id": "f" * 32}))
    cause = {"class": "X", "stack-trace": "The driver was lost.\n  at y"}
    failed = {"status": {"id": "COMPLETED"}, "operation": {"failure-cause": cause}}
    fake.on("GET", f"/jobs/{JOB_ID}/savepoints/{'f' * 32}", (200, failed))
    outcome = slotwise("stop", "--wait", "delays")
    assert (outcome.status, outcome.err) == (1, "The stop failed: The driver was lost.\n")


def test_rescales_prints_cause_author_before_and_after(slotwise: Run, fake: Any) -> None:
    outcome = slotwise(
        "rescales", "delays", "--limit", "3", "--cause", "UPDATE_REQUIREMENT", "--state", "COMPLETED"
    )
    assert fake.requests[-1].query == {"limit": "3", "cause": "UPDATE_REQUIREMENT", "state": "COMPLETED"}
    line = outcome.out.splitlines()[1]
    for part in (
        "UPDATE_REQUIREMENT",
        "ops",
        "delays 1->4",
        "COMPLETED",
        "in-place",
        "600 ms",
        "12 ms",
        "more flights",
    ):
        assert part in line


def test_forget_deletes(slotwise: Run, fake: Any) -> None:
    fake.on("DELETE", f"/jobs/{JOB_ID}", (200, {}))
    assert slotwise("forget", "delays").status == 0
    assert len(fake.sent("DELETE", f"/jobs/{JOB_ID}")) == 1


def test_a_reason_may_be_in_any_language(slotwise: Run, fake: Any) -> None:
    fake.on("PUT", REQUIREMENTS, (200, {}, {"ETag": '"2"'}))
    assert slotwise("require", "delays", "delays=:4", "--reason", "Größer").status == 0
    assert fake.requests[-1].headers["x-slotwise-reason"].encode("latin-1").decode() == "Größer"


def test_a_reason_of_several_lines_is_refused(slotwise: Run, fake: Any) -> None:
    outcome = slotwise("require", "delays", "delays=:4", "--reason", "a\nX-Evil: b")
    assert (outcome.status, fake.requests) == (2, [])


DRY_RUN = {
    "currentParallelism": {DELAYS: 1},
    "parallelism": {DELAYS: 4},
    "slotsBefore": 2,
    "slotsAfter": 5,
    "rung": "in-place",
    "refused": [],
    "explanation": ["The upper bounds need 9 slots; 5 can be had now."],
}


def test_a_dry_run_shows_what_would_happen(slotwise: Run, fake: Any) -> None:
    fake.on("PUT", REQUIREMENTS, (200, DRY_RUN))
    outcome = slotwise("require", "delays", "delays=:8", "--dry-run")
    assert fake.sent("PUT", REQUIREMENTS)[0].query == {"dryRun": "true"}
    assert ["delays", "1", "4"] in [line.split() for line in outcome.out.splitlines()]
    assert "slots: 2 now, 5 then" in outcome.out
    assert "rung: in-place" in outcome.out
    assert "The upper bounds need 9 slots" in outcome.out


def test_a_dry_run_that_would_be_refused_ends_with_1(slotwise: Run, fake: Any) -> None:
    refused = {**DRY_RUN, "parallelism": None, "refused": ["The upper bound 99 exceeds the maximum 8."]}
    fake.on("PUT", REQUIREMENTS, (200, refused))
    outcome = slotwise("require", "delays", "delays=:99", "--dry-run", "--json")
    assert outcome.status == 1
    assert outcome.err == "The upper bound 99 exceeds the maximum 8.\n"
    assert outcome.json["refused"]


@pytest.mark.parametrize(
    "text", ["delays", "=6", "delays=", "delays=0", "delays=-1", "delays=6.0", "delays=six"]
)
def test_state_partitions_that_are_no_number_are_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_partitions([text, text])
    assert str(refused.value).count("is not VERTEX=NUMBER") == 2


def test_state_partitions_by_vertex() -> None:
    assert parse_partitions(["delays=6", "a=b=12"]) == {"delays": 6, "a=b": 12}
    with pytest.raises(UsageError, match="given twice"):
        parse_partitions(["delays=6", "delays=8"])


def test_require_sends_state_partitions_with_the_bounds(slotwise: Run, fake: Any) -> None:
    fake.on("PUT", REQUIREMENTS, (200, {}, {"ETag": '"2"'}))
    assert slotwise("require", "delays", "delays=:2", "--state-partitions", "delays=6").status == 0
    (sent,) = fake.sent("PUT", REQUIREMENTS)
    with_number = {vertex: one["statePartitions"] for vertex, one in sent.json.items() if len(one) > 1}
    assert with_number == {vertex_id("delays", "delays"): 6}


def test_the_version_is_an_option_too(slotwise: Run) -> None:
    outcome = slotwise("--version")
    assert (outcome.status, outcome.out) == (0, slotwise("version").out)
    assert outcome.out.startswith("slotwise 0.")

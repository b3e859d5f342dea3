"""`slotwise submit job.py`: what the server is sent, and what is said."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import JOB_ID, details

Run = Callable[..., Any]


@pytest.fixture
def job(tmp_path: Path, fake: Any) -> Path:
    fake.on("POST", "/jobs", (202, {"jobid": JOB_ID, "jobUrl": f"/jobs/{JOB_ID}"}))
    script = tmp_path / "job.py"
    script.write_text("print('hello')\n")
    return script


def sent(fake: Any) -> tuple[dict[str, Any], dict[str, bytes], dict[str, str]]:
    """The document, the files and the query of the one submission."""
    [request] = fake.sent("POST", "/jobs")
    head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode()
    document: dict[str, Any] = {}
    files: dict[str, bytes] = {}
    for part in message_from_bytes(head + request.body).get_payload():
        name = part.get_param("name", header="content-disposition")  # type: ignore[union-attr]
        content = part.get_payload(decode=True)  # type: ignore[union-attr]
        if name == "graph":
            document = json.loads(content)  # type: ignore[arg-type]
        else:
            files[part.get_filename()] = content  # type: ignore[union-attr,index,assignment]
    return document, files, request.query


def test_a_program_is_sent_with_its_options(slotwise: Run, fake: Any, job: Path) -> None:
    helpers = job.parent / "lib" / "helpers.py"
    helpers.parent.mkdir()
    helpers.write_text("x = 1\n")
    outcome = slotwise(
        *("submit", str(job), "--name", "words", "--bounds", "counts=2:4", "--bounds", "store=:1"),
        *("--conf", "spark.sql.shuffle.partitions=24", "--conf", "spark.x=a=b", "--file", str(helpers)),
        *("--", "--topic", "words", "-v"),
    )
    assert (outcome.status, outcome.out, outcome.err) == (0, f"{JOB_ID}\n", "")
    document, files, query = sent(fake)
    assert document == {
        "name": "words",
        "script": "job.py",
        "args": ["--topic", "words", "-v"],
        "artifacts": ["job.py", "helpers.py"],
        "config": {"spark.sql.shuffle.partitions": "24", "spark.x": "a=b"},
        "bounds": {"counts": {"lowerBound": 2, "upperBound": 4}, "store": {"upperBound": 1}},
    }
    assert files == {"job.py": b"print('hello')\n", "helpers.py": b"x = 1\n"}
    assert query == {}


def test_a_program_is_sent_with_its_environment_variables(slotwise: Run, fake: Any, job: Path) -> None:
    assert (
        slotwise("submit", str(job), "--env", "TOPIC=words", "--env", "EMPTY=", "--env", "X=a=b").status == 0
    )
    assert sent(fake)[0]["environmentVariables"] == {"TOPIC": "words", "EMPTY": "", "X": "a=b"}
    outcome = slotwise(
        "submit", str(job), "--env", "TOPIC", "--env", "A=1", "--env", "A=2", "--env", "SPARK_X=1"
    )
    assert outcome.status == 2
    assert "--env 'TOPIC' is not NAME=VALUE, for example TOPIC=words." in outcome.err
    assert "--env A is given twice." in outcome.err
    assert "environmentVariables.SPARK_X: is not allowed" in outcome.err
    assert len(fake.sent("POST", "/jobs")) == 1


def test_the_name_of_a_program_is_that_of_its_file(slotwise: Run, fake: Any, job: Path) -> None:
    assert slotwise("submit", str(job)).status == 0
    assert sent(fake)[0]["name"] == "job"


@pytest.mark.parametrize(
    ("said", "whole"),
    [
        ("runs/counts", "{home}/runs/counts"),
        ("a%20b", "{home}/a%20b"),
        ("file:///a%20b/x/../c#1", "/a%20b/c#1"),
    ],
)
def test_the_checkpoint_of_another_is_named_by_its_whole_path(
    slotwise: Run, fake: Any, job: Path, monkeypatch: pytest.MonkeyPatch, said: str, whole: str
) -> None:
    monkeypatch.chdir(job.parent)
    assert slotwise("submit", str(job), "--from", said).status == 0
    assert sent(fake)[0]["from"] == whole.format(home=job.parent)
    outcome = slotwise("submit", str(job), "--from", "s3://bucket/counts")
    assert outcome.status == 2 and "from: should be an absolute path on the host of the server" in outcome.err
    outcome = slotwise("submit", str(job), "--from", "/data/counts", "--replace", "counts")
    assert outcome.status == 2 and "--from and --replace exclude each other" in outcome.err
    assert len(fake.sent("POST", "/jobs")) == 1


def test_everything_that_is_wrong_is_said_at_once(slotwise: Run, fake: Any, job: Path) -> None:
    outcome = slotwise(
        *("submit", str(job), "--bounds", "counts=4", "--bounds", "store=2:1", "--conf", "spark"),
        *("--conf", "spark.master=local", "--file", str(job.parent / "none.py"), "--file", str(job.parent)),
        *("--file", str(job)),
    )
    assert outcome.status == 2
    for part in (
        "nothing was sent",
        "'counts=4' is not VERTEX=LOWER:UPPER",
        "--conf 'spark' is not NAME=VALUE",
        "The setting spark.master is not allowed",
        "none.py cannot be read: No such file or directory",
        "is a directory: a package is sent along as a .zip of it",
        "Two files have the name job.py",
    ):
        assert part in outcome.err, outcome.err
    assert not fake.sent("POST", "/jobs")
    outcome = slotwise("submit", str(job), "--bounds", "store=2:1")
    assert "bounds.store.lowerBound: 2 is higher than the upperBound 1." in outcome.err


def test_what_is_for_programs_is_refused_for_graphs(slotwise: Run, fake: Any, tmp_path: Path) -> None:
    graph = tmp_path / "g.yaml"
    graph.write_text("name: x\n")
    outcome = slotwise("submit", str(graph), "--name", "y", "--conf", "a=b", "another.yaml")
    assert outcome.status == 2
    assert outcome.err.splitlines() == [
        "--name is for programs (*.py): a graph says it in its document.",
        "--conf is for programs (*.py): a graph says it in its document.",
        "'another.yaml' is one argument too many: only programs (*.py) have arguments.",
    ]


def test_the_environment_and_the_packages_of_a_program(slotwise: Run, fake: Any, job: Path) -> None:
    listed = job.parent / "requirements.txt"
    listed.write_text(
        "# what it needs\npyspark==4.1.1  # with Kafka\n\nmine @ https://example.org/m.zip#egg=mine\n"
    )
    archive = job.parent / "env.tar.gz"
    archive.write_bytes(b"packed")
    packages = ["g:a:1", "g:b_2.13:2"]
    given = [part for each in packages for part in ("--package", each)]
    for options, environment in (
        (["--python", "/opt/x/bin/python", *given], {"python": "/opt/x/bin/python"}),
        (
            ["--requirements", str(listed), "--requirements", "numpy==2.1.0"],
            {
                "requirements": [
                    "pyspark==4.1.1",
                    "mine @ https://example.org/m.zip#egg=mine",
                    "numpy==2.1.0",
                ]
            },
        ),
        (["--archive", str(archive)], {"archive": str(archive)}),
        (["--archive", "env.tar.gz"], {"archive": os.path.abspath("env.tar.gz")}),
        (["--file", str(archive), "--archive", "env.tar.gz"], {"archive": "env.tar.gz"}),
    ):
        assert slotwise("submit", str(job), *options).err == ""
        document, files, _ = sent(fake)
        fake.requests.clear()
        assert document["environment"] == environment
        assert document.get("packages", []) == (packages if options[-1] in packages else [])
        assert files.get("env.tar.gz") == (b"packed" if "--file" in options else None)


def test_an_environment_that_cannot_be_is_not_sent(slotwise: Run, fake: Any, job: Path) -> None:
    empty = job.parent / "requirements.txt"
    empty.write_text("# nothing\n")
    for options, part in (
        (["--python", "/bin/p", "--archive", "e.tar.gz"], "--python and --archive exclude each other"),
        (["--python", "python3"], "environment.python: should be an absolute path"),
        (["--python", ""], "environment.python"),
        (
            ["--requirements", str(job.parent / "none.txt")],
            "none.txt cannot be read: No such file or directory.",
        ),
        (["--requirements", "lib/none"], "lib/none cannot be read: No such file or directory."),
        (["--requirements", str(empty)], "environment.requirements: must not be empty"),
        (["--requirements", "--index-url=x"], "should be a requirement such as numpy==2.1.0"),
        (["--package", "g:a"], "packages[0]: should be the coordinates of one version"),
    ):
        outcome = slotwise("submit", str(job), *options)
        assert outcome.status == 2 and part in outcome.err, (options, outcome.err)
    assert not fake.sent("POST", "/jobs")


def test_a_program_described_by_a_document(slotwise: Run, fake: Any, job: Path) -> None:
    graph = job.parent / "g.yaml"
    graph.write_text("name: words\nscript: job.py\nargs: [a]\n")
    assert slotwise("submit", str(graph)).status == 0
    document, files, _ = sent(fake)
    assert document == {"name": "words", "script": "job.py", "args": ["a"]}
    assert list(files) == ["job.py"]


def test_a_module_that_lies_beside_the_script_of_a_failed_job_is_named(
    slotwise: Run, fake: Any, job: Path
) -> None:
    why = "job.py, line 1: there is no module helpers: it is neither among the artifacts of the job nor installed."
    sentence = f"The job {JOB_ID} ended as FAILED: {why}"
    failed = {"exceptionHistory": {"entries": [{"message": f"{why}\nTraceback"}]}}
    fake.on("GET", f"/jobs/{JOB_ID}", (200, {**details("FAILED"), "underWay": False}))
    fake.on("GET", f"/jobs/{JOB_ID}/exceptions", (200, failed))

    def told(*options: str) -> list[str]:
        outcome = slotwise("submit", "--wait", str(job), *options)
        assert outcome.status == 1
        return list(outcome.err.splitlines())

    assert told() == [sentence]
    helpers = job.parent / "helpers.py"
    helpers.write_text("")
    hint = f"helpers.py is in the directory of job.py, but is not sent automatically: add --file {helpers}"
    assert told() == [sentence, hint]
    assert told("--file", str(helpers)) == [sentence]
    helpers.unlink()
    (job.parent / "helpers").mkdir()
    assert "make helpers.zip (cd " in told()[1]


def test_a_graph_says_its_environment_in_its_document(slotwise: Run, fake: Any, tmp_path: Path) -> None:
    vertices = [
        {"name": "made", "source": {"format": "rate"}},
        {"name": "kept", "inputs": ["made"], "sink": {"format": "noop"}},
    ]
    document = {"name": "numbers", "type": "STREAMING", "packages": ["a:b:1"], "vertices": vertices}
    (tmp_path / "graph.json").write_text(json.dumps(document))
    fake.on("POST", "/jobs", (202, {"jobid": JOB_ID, "jobUrl": ""}))
    assert slotwise("submit", str(tmp_path / "graph.json")).status == 0
    [request] = fake.sent("POST", "/jobs")
    assert json.loads(request.body)["packages"] == ["a:b:1"]
    document["packages"] = ["a:b"]
    (tmp_path / "graph.json").write_text(json.dumps(document))
    refused = slotwise("submit", str(tmp_path / "graph.json"))
    assert "packages[0]: should be the coordinates of one version" in refused.err


def test_a_batch_program_is_sent_as_one(slotwise: Run, fake: Any, job: Path) -> None:
    outcome = slotwise("submit", str(job), "--batch", "--bounds", "job=1:4")
    assert (outcome.status, outcome.out) == (0, f"{JOB_ID}\n"), outcome.err
    assert sent(fake)[0]["type"] == "BATCH"


def test_there_is_no_command_that_plans(slotwise: Run, fake: Any, job: Path) -> None:
    outcome = slotwise("plan", str(job))
    assert outcome.status == 2 and "No such command 'plan'" in outcome.err
    assert not fake.requests

"""What a program finds in its session, by plain Python, in a cold driver and in a warm one: the same, but for what the
table of docs/programs.md lists."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from app.model.jobgraph import Role
from app.model.planned import PlannedVertex
from tests.integration.driver.harness import ROOT, Bench, Driver, wait_for
from tests.integration.driver.test_batch_program import job as batch_job
from tests.integration.driver.test_program_attempt import SOURCE, job

pytestmark = pytest.mark.timeout(900)

SCRIPT = ROOT / "tests" / "programs" / "session_report.py"
PAGE = ROOT / "docs" / "programs.md"
HEAD = "| asked for | plain Python | Slotwise | why |"
ANOTHER = "another in each attempt"
"""Of the third column: cold and warm drivers differ in it, too."""
ABSENT = "none"
ARGS = ["--of", "its own"]
VARIABLES = {
    "SET_BY_THE_JOB": "words, and a 'quoted' = sign\nin two lines: ä",
    "EMPTY": "",
    "CHANGED_BY_THE_JOB": "2",
    "CHANGED_BY_THE_PROGRAM": "the job's",
    "TZ": "Pacific/Chatham",
    "TMPDIR": "/var/tmp",
}
"""Of the job; by plain Python, of its shell."""
OF_THE_PROGRAM = {
    "SET_BY_THE_PROGRAM": "1",
    "CHANGED_BY_THE_PROGRAM": "the job's, changed",
    "TAKEN_BY_THE_PROGRAM": ABSENT,
    "TOO_LATE": ABSENT,
}
"""What tasks are to find of what the program does."""
NOWHERE = PlannedVertex("nowhere", Role.SINK, "noop", (SOURCE.name,))

Found = dict[str, str]
Row = tuple[list[str], str, str]
"""The names, as patterns, what plain Python says, and what Slotwise says."""


def rows() -> list[Row]:
    lines = PAGE.read_text(encoding="utf-8").partition(f"{HEAD}\n")[2].partition("\n\n")[0].splitlines()[1:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [(re.findall("`(.+?)`", names), plain, ours) for names, plain, ours, _ in cells]


def rows_of(entry: str) -> list[Row]:
    name = entry.rpartition(": ")[2]
    return [
        row for row in rows() if any(fnmatchcase(name, pattern.replace("[", "[[]")) for pattern in row[0])
    ]


def says(cell: str, value: str) -> bool:
    """Whether a cell, which has values or words, is right. A value that is the default may not be set at all."""
    if cell.startswith("`"):
        return value in {*re.findall("`(.*?)`", cell), ABSENT}
    return cell != ABSENT or value == ABSENT


def of_plain_python(directory: Path, environment: dict[str, str]) -> Found:
    out = directory / "plain.json"
    directory.mkdir()
    with open(directory / "log", "wb") as log:
        subprocess.run(
            [sys.executable, SCRIPT, out, "no query", *ARGS],
            cwd=directory,
            env={**os.environ, **environment, **VARIABLES},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            check=True,
        )
    return found_in(out, directory)


def found_in(report: Path, working_dir: Path) -> Found:
    """What the program found. Each has a working directory of its own."""
    return json.loads(report.read_text().replace(str(working_dir), "<working directory>"))  # type: ignore[no-any-return]


def of_a_driver(rig: Bench, name: str) -> Found:
    out = rig.directory / f"{name}.json"
    text = SCRIPT.read_text(encoding="utf-8")
    if name.endswith("batch"):
        document = batch_job(rig, text, args=[str(out), "no query", *ARGS])
    else:
        document = {**job(rig, text, (SOURCE, NOWHERE)), "args": [str(out), "query", *ARGS]}
    document["environmentVariables"] = VARIABLES
    working_dir, warm = rig.directory / f"home of {name}", name.startswith("warm")
    working_dir.mkdir()
    # A warm driver does not know yet where it will be.
    driver = Driver(rig.directory / "run", warm=warm, working_dir=ROOT if warm else working_dir)
    rig.drivers.append(driver)
    driver.wait_ready()
    driver.assign(rig.spec(document, master="local[2]", slots=2, working_dir=str(working_dir)))
    wait_for("the end", lambda: driver.process.poll() is not None)
    assert not rig.control_plane.of_type("failed"), driver.log
    assert rig.control_plane.of_type("finished"), driver.log
    shutil.rmtree(rig.checkpoint_dir)
    return found_in(out, working_dir)


def differing(one: Found, other: Found) -> dict[str, tuple[str, str]]:
    pairs = {name: (one.get(name, ABSENT), other.get(name, ABSENT)) for name in one.keys() | other.keys()}
    return {name: pair for name, pair in sorted(pairs.items()) if pair[0] != pair[1]}


@pytest.mark.long
def test_a_program_finds_what_plain_python_gives_it_but_for_a_list(
    rig: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {
        "TZ": "Asia/Kathmandu",
        "LC_ALL": "C.UTF-8",
        "TAKEN_BY_THE_PROGRAM": "1",
        "CHANGED_BY_THE_JOB": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(rig.directory),
    }
    # Tests that ran a Spark in this process have set some.
    for name in [name for name in os.environ if name.startswith(("SPARK_", "PYSPARK_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(Driver, "environment", environment)
    with ThreadPoolExecutor() as beside:
        by_plain_python = beside.submit(of_plain_python, rig.directory / "plain", environment)
        drivers = {name: of_a_driver(rig, name) for name in ("cold", "warm", "warm batch")}
        plain = by_plain_python.result()

    wrong, met = [], []
    for name, ours in drivers.items():
        for entry, (of_plain, of_ours) in differing(plain, ours).items():
            found = rows_of(entry)
            met += found
            if not any(says(left, of_plain) and says(right, of_ours) for _, left, right in found):
                wrong.append(f"{entry}: {of_plain} by plain Python, {of_ours} by a {name} driver")
    for entry, (cold, warm) in differing(drivers["cold"], drivers["warm"]).items():
        if not any(right.startswith(ANOTHER) for _, _, right in rows_of(entry)):
            wrong.append(f"{entry}: {cold} by a cold driver, {warm} by a warm one")
    assert not wrong, "\n".join(wrong)
    assert not [row for row in rows() if row not in met], "rows of the table in which nothing differs"
    for ours in drivers.values():
        assert (ours["first: sc.appName"], ours["second: sc.appName"]) == ("mine", "mine")
        assert ours["first: tempfile.gettempdir()"] == "/var/tmp"
        for when in ("first", "second"):
            in_task = {
                name: ours.get(f"{when}: os.environ[{name}] in a task", ABSENT)
                for name in (*VARIABLES, *OF_THE_PROGRAM)
            }
            assert in_task == {**VARIABLES, **OF_THE_PROGRAM}

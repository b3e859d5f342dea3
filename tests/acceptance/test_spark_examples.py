"""Spark's own streaming examples, as they are in the pip package: rescaled in place, and exact by what they print.

They read a socket, which cannot be read again, so none of them is killed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest

from tests.acceptance.console import session_counts, word_counts
from tests.acceptance.deployment import Deployment, deployed, wait_for
from tests.acceptance.lines import LineServer, words
from tests.acceptance.plain_run import plain
from tests.acceptance.programs import Outcome, await_running, printed, rescale, run_cli, submit

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]

EXAMPLES = Path(pyspark.__file__).parent / "examples/src/main/python/sql/streaming"
FIRST, STEP, RESCALES = 100, 40, 10
CASES: dict[str, tuple[list[str], Callable[[str], Counter[str]]]] = {
    "structured_network_wordcount.py": ([], word_counts),
    # Windows and sessions are of the time at which a line came: each run has others, the words in them are these. The
    # console shows twenty rows, so the windows are long.
    "structured_network_wordcount_windowed.py": (["3600", "3600"], word_counts),
    "structured_network_wordcount_session_window.py": ([], session_counts),
}
# Spark refuses the fifth of those that read a socket, also when it runs alone: no update mode for session windows.
REFUSED = "structured_sessionization.py"
CONFIG = {"spark.sql.shuffle.partitions": "6"}


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("examples")) as made:
        made.start(with_points=False)
        yield made


@pytest.fixture
def lines() -> Iterator[LineServer]:
    server = LineServer()
    yield server
    server.close()


def plain_counts(name: str, lines: LineServer, log: Path) -> Counter[str]:
    """What the example makes of all lines in one run of its own."""
    options, read = CASES[name]
    with plain(EXAMPLES / name, ["127.0.0.1", str(lines.port), *options], log) as process:

        def reached() -> bool:
            text = log.read_text(encoding="utf-8")
            assert process.poll() is None, text[-4000:]
            return read(text) == words(lines.told)

        wait_for("the example has counted every line", reached)
    return read(log.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", list(CASES))
def test_an_example_counts_as_it_does_alone(
    deployment: Deployment, lines: LineServer, tmp_path: Path, name: str
) -> None:
    options, read = CASES[name]
    outcome, dice = Outcome(), random.Random(len(name))
    lines.tell(FIRST)
    submit(
        deployment, EXAMPLES / name, ["127.0.0.1", str(lines.port), *options], "--name", name, config=CONFIG
    )
    await_running(deployment)
    for _ in range(RESCALES):
        lines.tell(STEP)
        rescale(deployment, dice, outcome)
    wait_for("the job has counted every line", lambda: read(printed(deployment)) == words(lines.told))
    deployment.stop()

    assert read(printed(deployment)) == plain_counts(name, lines, tmp_path / "plain.log")
    assert (outcome.in_place, outcome.others) == (RESCALES, [])
    print(f"OUTCOME {name}: {outcome.in_place} rescales in place, exact: {lines.told} lines")


def test_an_example_that_spark_refuses_fails_its_job_with_spark_s_sentence(deployment: Deployment) -> None:
    said = run_cli(deployment, "submit", "--wait", str(EXAMPLES / REFUSED), "--", "127.0.0.1", "1")
    assert said.returncode == 1 and "ended as FAILED" in said.stderr
    assert "session window streaming aggregations" in said.stderr and f"{REFUSED}, line " in said.stderr

"""TPC-H as job graphs, with a durable result at every join: the answers are DuckDB's, by one rule or by either."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from app.documents.graph import parse_document
from tests.integration.batch.harness import Regions
from tests.tpch import answers, generate, graphs


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tpch")
    generate("0.01", directory)
    return directory


@pytest.mark.parametrize(
    ("query", "rule", "upper"),
    [
        pytest.param(query, rule, upper, marks=() if upper > 1 and rule in rules else pytest.mark.long)
        for query, rules in zip(sorted(graphs.GRAPHS), cycle([("even-data",), ("flip-187",)]), strict=False)
        for rule, upper in (("flip-187", 16), ("even-data", 16), ("flip-187", 1))
    ],
)
def test_the_answer_is_that_of_duckdb(
    session: Any, data: Path, tmp_path: Path, query: str, rule: str, upper: int
) -> None:
    # Little data for each task, so that there are as many as may be.
    config = {
        "slotwise.batch.parallelism-decider": rule,
        "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task": "16 kb",
    }
    document = graphs.document(query, data, tmp_path / "out", upper=upper, config=config)
    job = Regions(session, parse_document(document), tmp_path, job_id=f"{query}{rule[:4]}{upper}")
    job.run()
    assert answers.found(tmp_path / "out") == answers.expected(query, data)
    assert len(job.done) == len(job.job.state.batch.regions)  # type: ignore[union-attr]

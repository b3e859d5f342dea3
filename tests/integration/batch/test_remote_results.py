"""Results on a file system of Hadoop that is not the local one: the same answers, and what is left behind goes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.documents.graph import parse_document
from app.driver.batch.results import MANIFEST, Keeper
from app.driver.batch.sources import source_bytes
from tests.integration.batch.conftest import VOLUME
from tests.integration.batch.harness import KEYS, REMOTE, ROWS, Regions, shuffled_bytes, written
from tests.tpch import answers, generate, graphs

COUNTS = sorted((key, KEYS.count(key)) for key in set(KEYS))


@pytest.mark.parametrize(("volume", "tasks"), [("64", 8), ("6 kb", 2)])
@pytest.mark.parametrize("rule", ["flip-187", "even-data"])
def test_a_task_for_each_bucket_needs_no_shuffle_and_fewer_tasks_need_one(
    regions: Callable[..., Regions], session: Any, mounted: Path, rule: str, volume: str, tasks: int
) -> None:
    job = regions(
        ("counts", ["left[k]"], "SELECT k, count(*) AS n FROM left GROUP BY k"),
        rule=rule,
        config={VOLUME: volume},
        root=REMOTE,
    )
    job.begin()
    (result,) = job.step().results
    assert result.path.startswith(f"{REMOTE}/{job.job_id}/")
    assert sum(result.rows_of) == ROWS and len(result.rows_of) == 8
    assert (mounted / job.job_id / result.dataset / "1" / MANIFEST).is_file()
    before = shuffled_bytes(session)
    done = job.step()
    (read,) = done.order.reads
    if rule == "flip-187":
        assert done.order.parallelism[read.vertex_id] == tasks
    by_bucket = read.groups == tuple((bucket,) for bucket in range(8))
    assert (shuffled_bytes(session) == before) == by_bucket
    assert by_bucket == (tasks == 8)
    assert written(job) == COUNTS
    assert not (job.directory / "results").exists()


def test_a_name_that_is_a_pattern_elsewhere_is_a_name(regions: Callable[..., Regions]) -> None:
    job = regions(
        ("some", ["left[k]"], "SELECT k, n FROM left WHERE n % 2 = 0"),
        ("joined", ["some[k]", "right[k]"], "SELECT some.k, n, m FROM some JOIN right ON some.k = right.k"),
        ("all", ["joined[n]"], "SELECT k, n, m FROM joined"),
        root=f"{REMOTE}/[a]{{b,c}}*",
    )
    job.run()
    assert written(job) == sorted((KEYS[number], number, KEYS[number] * 10) for number in range(0, ROWS, 2))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tpch")
    generate("0.01", directory)
    return directory


@pytest.mark.parametrize(("query", "rule"), [("q3", "flip-187"), ("q5", "even-data")])
def test_the_answer_is_that_of_duckdb(
    session: Any, data: Path, tmp_path: Path, query: str, rule: str
) -> None:
    config = {"slotwise.batch.parallelism-decider": rule, VOLUME: "16 kb"}
    document = graphs.document(query, data, tmp_path / "out", upper=8, config=config)
    job_id = f"remote{query}"
    job = Regions(session, parse_document(document), tmp_path, job_id=job_id, results=f"{REMOTE}/{job_id}")
    job.run()
    assert answers.found(tmp_path / "out") == answers.expected(query, data)


def test_what_is_not_kept_goes(regions: Callable[..., Regions], mounted: Path) -> None:
    job = regions(("counts", ["left[k]"], "SELECT k, count(*) AS n FROM left GROUP BY k"), root=REMOTE)
    job.begin()
    (result,) = job.step().results
    home = mounted / job.job_id
    leftovers = [home / result.dataset / "7", home / "another" / "1"]
    for left in leftovers:
        left.mkdir(parents=True)
        (left / "part-00000").write_text("of a driver that was killed")
    keeper = Keeper(job.storages, job.results)
    keeper.keep({result.path})
    assert not any(left.exists() for left in leftovers)
    job.step()
    assert written(job) == COUNTS
    keeper.remove_all()
    assert not home.exists()
    # What is gone already is no failure.
    keeper.remove_all()
    Keeper(job.storages, f"{REMOTE}/never").keep(set())


def test_the_sizes_of_sources_are_looked_up_where_they_are(
    session: Any, mounted: Path, tmp_path: Path
) -> None:
    (mounted / "day").mkdir()
    for name, size in {"a.parquet": 5, "b.parquet": 7}.items():
        (mounted / "day" / name).write_bytes(bytes(size))
    (tmp_path / "c.parquet").write_bytes(bytes(11))
    paths = {
        "all": f"{REMOTE}/day",
        "one": f"{REMOTE}/day/b.parquet",
        "here": str(tmp_path),
        "gone": f"{REMOTE}/gone",
        "unknown": "nosuch://host/x",
    }
    vertices: list[dict[str, Any]] = [
        {"name": name, "source": {"format": "parquet", "path": path}} for name, path in paths.items()
    ]
    sinks = [{"name": f"to_{name}", "inputs": [name], "sink": {"format": "noop"}} for name in paths]
    graph = parse_document({"name": "job", "type": "BATCH", "vertices": vertices + sinks})
    found = source_bytes(session, graph)
    assert {graph.by_id[one].name: size for one, size in found.items()} == {"all": 12, "one": 7, "here": 11}

"""Regions and their results on real Spark: what is read is what was written, however the buckets were divided."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from app.driver.batch.region import RegionDone
from app.driver.batch.results import MANIFEST, is_modulo
from tests.integration.batch.conftest import VOLUME
from tests.integration.batch.harness import (
    KEYS,
    REMOTE,
    ROWS,
    Regions,
    free_reads,
    shuffled_bytes,
    stages,
    written,
)
from tests.integration.driver.harness import wait_for

COUNTS = sorted((key, KEYS.count(key)) for key in set(KEYS))


@pytest.mark.parametrize("rule", ["flip-187", "even-data"])
def test_an_aggregate_by_the_keys_of_its_input_shuffles_nothing(
    regions: Callable[..., Regions], session: Any, rule: str
) -> None:
    job = regions(("counts", ["left[k]"], "SELECT k, count(*) AS n FROM left GROUP BY k"), rule=rule)
    job.begin()
    job.step()
    before = shuffled_bytes(session)
    job.step()
    assert shuffled_bytes(session) == before
    assert written(job) == COUNTS
    assert free_reads(job) == (rule == "even-data")


def test_a_filter_on_the_key_reads_the_bucket_where_its_rows_are(regions: Callable[..., Regions]) -> None:
    """Spark opens only the bucket that the hash of the value names, which is another one here."""
    job = regions(("one", ["left[k]"], "SELECT k, count(*) AS n FROM left WHERE k IN (3, 8, 33) GROUP BY k"))
    job.run()
    assert free_reads(job)
    assert written(job) == [one for one in COUNTS if one[0] in (3, 8, 33)]


def test_inputs_that_are_divided_each_in_its_own_way_are_joined_rightly(
    regions: Callable[..., Regions],
) -> None:
    job = regions(
        # Bytes that nothing makes smaller, most of them of one key.
        ("a", ["left"], "SELECT *, xxhash64(n) AS noise FROM left"),
        ("b", ["right"], "SELECT k, m FROM right CROSS JOIN (SELECT explode(sequence(1, 40)))"),
        ("x", ["a[k]"], "SELECT /*+ REPARTITION(1) */ k, n FROM a"),
        ("y", ["b[k]"], "SELECT k, m FROM b"),
        (
            "joined",
            ["x", "y"],
            "SELECT /*+ MERGE(y) */ x.k, count(*) AS n FROM x JOIN y ON x.k = y.k GROUP BY x.k",
        ),
        upper={"x": 3, "y": 3, "joined": 3},
    )
    job.run()
    assert written(job) == [(key, count * 40) for key, count in COUNTS]
    assert len({read.groups for read in job.done[-1].order.reads}) == 2, "they are not divided alike"


def test_a_join_of_inputs_that_are_divided_alike_is_exact(regions: Callable[..., Regions]) -> None:
    for rule in ("flip-187", "even-data"):
        job = regions(
            (
                "joined",
                ["left[k]", "right[k]"],
                "SELECT /*+ MERGE(right) */ n, m FROM left JOIN right USING (k)",
            ),
            rule=rule,
        )
        job.run()
        assert written(job) == sorted((number, KEYS[number] * 10) for number in range(ROWS)), rule
        shutil.rmtree(job.directory / "out")


def test_inputs_of_unequal_numbers_of_parts_are_divided_alike(
    regions: Callable[..., Regions], session: Any
) -> None:
    """`left` is in eight parts, as `wide` may read it so; `right` in four, as `joined` may."""
    job = regions(
        ("wide", ["left[k]"], "SELECT k, count(*) AS n FROM left GROUP BY k"),
        (
            "joined",
            ["left[k]", "right[k]"],
            "SELECT /*+ MERGE(right) */ left.k, m FROM left JOIN right ON left.k = right.k",
        ),
        ("all", ["wide[k]", "joined[k]"], "SELECT joined.k, m, n FROM joined JOIN wide ON joined.k = wide.k"),
        upper={"joined": 4},
        config={VOLUME: "8 kb"},
    )
    before = shuffled_bytes(session)
    job.run()
    assert shuffled_bytes(session) == before
    joined = next(
        done.order for done in job.done if len({len(r.result.bytes_of) for r in done.order.reads}) == 2
    )
    assert all(not is_modulo(read.groups) for read in joined.reads), (
        "the test is of ranges, as even-data has them"
    )
    assert written(job) == sorted((key, key * 10, KEYS.count(key)) for key in KEYS)


@pytest.mark.parametrize("name", ["with space 100% o'hare", "münchen a#b?c;d", "[a]{b,c}*\\d"])
def test_a_directory_may_be_called_anything(
    regions: Callable[..., Regions], tmp_path: Path, name: str
) -> None:
    job = regions(
        ("some", ["left[k]"], "SELECT k, n FROM left WHERE n < 100"),
        ("all", ["some", "right"], "SELECT n, m FROM some JOIN right ON some.k = right.k"),
        directory=tmp_path / name,
    )
    job.run()
    assert len(written(job)) == 100


def test_nothing_is_read_as_nothing(regions: Callable[..., Regions]) -> None:
    for rule in ("flip-187", "even-data"):
        job = regions(
            ("none", ["left"], "SELECT k, n FROM left WHERE n < 0"),
            ("counts", ["none[k]"], "SELECT k, count(*) AS n FROM none GROUP BY k"),
            rule=rule,
        )
        job.run()
        assert written(job) == []


def test_a_directory_is_no_pattern_for_its_neighbours(
    regions: Callable[..., Regions], tmp_path: Path
) -> None:
    for name in ("ab", "a?"):
        job = regions(
            ("counts", ["left[k]"], "SELECT k, count(*) AS n FROM left GROUP BY k"), directory=tmp_path / name
        )
        job.run()
        assert written(job) == COUNTS


def _failed(job: Regions) -> RegionDone:
    (order,) = job.job.orders.values()
    return job.alone(order)


def _last_value_at(file: Path) -> int:
    """Where the last byte of the first column's values is."""
    column = parquet.read_metadata(file).row_group(0).column(0)
    start = column.dictionary_page_offset or column.data_page_offset
    return int(start + column.total_compressed_size - 1)


@pytest.mark.parametrize("root", [None, REMOTE])
def test_a_result_that_is_lost_or_damaged_is_named(
    regions: Callable[..., Regions], mounted: Path, root: str | None
) -> None:
    # Which may be wanted of sources, not of results.
    conf = {f"spark.sql.files.ignore{kind}Files": "true" for kind in ("Corrupt", "Missing")}
    job = regions(
        ("counts", ["left[k]"], "SELECT k, sum(n) AS n FROM left GROUP BY k"),
        rule="flip-187",
        conf=conf,
        root=root,
    )
    job.begin()
    result = job.step().results[0]
    path = Path(result.path.replace(REMOTE, str(mounted)))
    # Hadoop's own, which it has where Spark writes to another file system: they would find out first.
    checksums = list(path.glob(".*.crc"))
    assert bool(checksums) == (root is not None)
    for checksum in checksums:
        checksum.unlink()
    file = max(path.glob("part-*"), key=lambda one: one.stat().st_size)
    content, last_value = file.read_bytes(), _last_value_at(file)

    file.write_bytes(content[:-1])
    ended = _failed(job)
    assert ended.lost == (result.dataset,)
    assert ended.failure is not None and "bytes instead of" in ended.failure.sentence

    # Another content of the same length: only who reads it finds out.
    file.write_bytes(content[:4] + bytes(len(content) - 12) + content[-8:])
    ended = _failed(job)
    assert ended.lost == (result.dataset,)
    assert ended.failure is not None and "is damaged" in ended.failure.sentence

    # One bit of a value: without a checksum it would be another number.
    flipped = bytearray(content)
    flipped[last_value] ^= 1
    file.write_bytes(flipped)
    ended = _failed(job)
    assert ended.lost == (result.dataset,)
    assert ended.failure is not None and "is damaged" in ended.failure.sentence

    file.unlink()
    ended = _failed(job)
    assert ended.lost == (result.dataset,) and ended.failure is not None
    assert "is missing" in ended.failure.sentence and ended.failure.recoverable

    (path / MANIFEST).unlink()
    assert _failed(job).lost == (result.dataset,)

    # Nobody can tell whether it is lost while it cannot be asked for.
    elsewhere = replace(result, path=result.path.replace("viewfs:", "nosuch:"))
    if root is not None:
        (order,) = job.job.orders.values()
        ended = job.alone(replace(order, reads=(replace(order.reads[0], result=elsewhere),)))
        assert ended.lost == () and ended.failure is not None
        assert 'No FileSystem for scheme "nosuch"' in ended.failure.sentence


def test_a_run_that_was_canceled_writes_nothing(regions: Callable[..., Regions]) -> None:
    job = regions(("counts", ["left"], "SELECT k, sum(n) AS n FROM left GROUP BY k"))
    job.begin()
    (order,) = job.job.orders.values()
    run = job.region_run(order)
    run.cancel()
    run.start()
    ended = job._inbox.get(timeout=60)
    assert ended.failure is not None and ended.results == ()
    assert written(job) == []


def test_a_run_that_is_canceled_while_spark_works_for_it_leaves_no_result(
    regions: Callable[..., Regions],
) -> None:
    job = regions(
        ("many", ["left"], "SELECT k, n FROM left CROSS JOIN (SELECT id FROM range(1000000000))"),
        ("counts", ["many[k]"], "SELECT k, sum(n) AS n FROM many GROUP BY k"),
    )
    job.begin()
    (order,) = job.job.orders.values()
    run = job.region_run(order)
    run.start()
    wait_for("Spark has a task of it", lambda: run.task_news() is not None)
    run.cancel()
    ended = job._inbox.get(timeout=60)
    assert ended.failure is not None and ended.results == ()
    assert not list(Path(job.results).glob(f"*/*/{MANIFEST}"))


@pytest.mark.parametrize(
    ("upper", "widths"),
    [
        ({"counts": 3}, (8, 3)),
        ({"counts": 3, "store": 2}, (8, 2)),
        ({"left": 1, "store": 2}, (1, 2)),
    ],
)
def test_no_vertex_of_a_region_has_more_tasks_than_its_upper_bound(
    regions: Callable[..., Regions], session: Any, upper: dict[str, int], widths: tuple[int, int]
) -> None:
    """``widths``: of the stage that reads the source, and of the one that writes the answer."""
    before = {int(stage.stageId()) for stage in stages(session)}
    job = regions(
        ("all", ["left"], "SELECT * FROM left"),
        ("counts", ["all"], "SELECT k, n % 7 AS m, count(*) AS n FROM all GROUP BY k, n % 7"),
        # Spark is not to see how few rows there are, nor how small the file is.
        conf={
            "spark.sql.adaptive.coalescePartitions.enabled": "false",
            "spark.sql.files.openCostInBytes": "1",
        },
        upper=upper,
    )
    job.run()
    own = [one for one in stages(session) if int(one.stageId()) not in before and one.numCompleteTasks()]
    found = [int(stage.numTasks()) for stage in sorted(own, key=lambda one: int(one.stageId()))]
    assert (found[-2], found[-1]) == widths
    assert sum(row[-1] for row in written(job)) == ROWS


def test_a_run_leaves_no_table_in_sparks_catalog(regions: Callable[..., Regions], session: Any) -> None:
    job = regions(("counts", ["left[k]"], "SELECT k, count(*) AS n FROM left GROUP BY k"))
    job.run()
    assert [table.name for table in session.catalog.listTables() if table.name.startswith("slotwise")] == []


def test_a_key_that_the_producer_does_not_have_is_named(regions: Callable[..., Regions]) -> None:
    job = regions(("counts", ["left[kk]"], "SELECT 1 AS one FROM left"))
    job.begin()
    ended = _failed(job)
    assert ended.failure is not None and not ended.failure.recoverable
    assert ended.failure.sentence == (
        "Vertex left: An edge is partitioned by kk, which its producer does not have: its columns are k, n."
    )

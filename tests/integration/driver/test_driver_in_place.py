"""In place means in place: the next batch, the same process, the same query run, the decided number of tasks."""

from __future__ import annotations

import random
from typing import Any

import pytest

from app.documents.graph import parse_document
from tests.integration.driver.documents import counting, expected_counts, stored_counts
from tests.integration.driver.harness import Bench, wait_for

RESCALES = 50


def tasks_of(batch: dict[str, Any], vertex_id: str) -> tuple[int, int | None]:
    vertex = next(each for each in batch["vertices"] if each["vertex_id"] == vertex_id)
    return vertex["parallelism"], vertex["tasks"]


@pytest.mark.timeout(900)
@pytest.mark.long
def test_fifty_rescales_in_place_give_the_decided_tasks_and_exact_counts(rig: Bench) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    document = counting(rig.directory, rows=None)
    ids = {vertex.name: vertex.id for vertex in parse_document(document).vertices}
    driver = rig.start(document, {"numbers": 2, "counts": 4, "store": 1})
    rig.wait_batches(2)
    wanted = [1, 2, 3, 4, 5, 6, 7, 8, *(rng.randint(1, 8) for _ in range(RESCALES - 8))]
    rng.shuffle(wanted)
    for number, parallelism in enumerate(wanted):
        version = 1_000 + number
        plan = {"numbers": rng.randint(1, 8), "counts": parallelism, "store": rng.randint(1, 8)}
        rig.change_plan(document, version, plan)
        wait_for(
            f"plan {version}",
            lambda version=version: [
                r for r in rig.control_plane.of_type("plan-applied") if r["plan_version"] == version
            ],
        )
        batch = wait_for(
            "its batch",
            lambda version=version: [b for b in rig.control_plane.batches if b["plan_version"] == version],
        )[0]
        for name, value in plan.items():
            assert tasks_of(batch, ids[name]) == (value, value), (name, plan, batch)
    assert {r["run_id"] for r in rig.control_plane.batches} == {rig.control_plane.batches[0]["run_id"]}
    assert {r["pid"] for r in rig.control_plane.registrations} == {driver.process.pid}
    assert all(r["reprocessed_records"] == 0 for r in rig.control_plane.of_type("plan-applied"))

    rig.control_plane.order(stop="drain")
    stopped = wait_for("the end", lambda: rig.control_plane.of_type("stopped"))
    assert stopped[0]["drained"]
    assert driver.exit_status() == 0
    rows = sum(batch["input_rows"] for batch in rig.control_plane.batches)
    assert stored_counts(rig.directory) == expected_counts(rows)


@pytest.mark.timeout(600)
def test_a_query_without_data_takes_up_a_plan_at_once_and_is_killed(rig: Bench) -> None:
    document = counting(rig.directory, rows=500, rows_per_second=100_000)
    # A directory that stays empty has no data, and is not exhausted.
    source = rig.directory / "in"
    source.mkdir()
    document["vertices"][0]["source"] = {"format": "csv", "path": str(source), "schema": "value BIGINT"}
    driver = rig.start(document, {"numbers": 2, "counts": 4})
    wait_for("the first plan", lambda: rig.control_plane.of_type("plan-applied"))
    rig.change_plan(document, 1_000, {"numbers": 3, "counts": 5})
    wait_for(
        "the plan",
        lambda: [r for r in rig.control_plane.of_type("plan-applied") if r["plan_version"] == 1_000],
    )
    # Spark begins with a batch without data; after it there was none.
    assert not any(batch["input_rows"] for batch in rig.control_plane.batches)
    done = len(rig.control_plane.batches)
    hidden = source / ".a.csv"
    hidden.write_text("\n".join(str(n) for n in range(500)) + "\n", encoding="utf-8")
    hidden.rename(source / "a.csv")
    batch = rig.wait_batches(done + 1)[done]
    ids = {vertex.name: vertex.id for vertex in parse_document(document).vertices}
    assert tasks_of(batch, ids["numbers"]) == (3, 3)
    assert tasks_of(batch, ids["counts"]) == (5, 5)
    rig.control_plane.order(stop="kill")
    assert driver.exit_status() == 0

"""Checkpoints of documents that earlier code wrote are continued, exact, for each kind of vertex with state.

They are stored in `tests/checkpoints`, with the document, its functions and the input. One driver continues all of
one state.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from app.driver.checkpoints import standing
from tests.checkpoints.stored import (
    BEFORE,
    FILES,
    HERE,
    HOME,
    SIDE,
    at,
    checkpoint_of,
    home,
    put,
    query_id,
    rows_in,
    rows_of,
    table_of,
    unpack,
)
from tests.integration.driver.harness import Bench, Driver, bench, wait_for

pytestmark = pytest.mark.timeout(600)

Rows = list[tuple[Any, ...]]

LEFT = [row for number in range(FILES) for row in rows_of("left", number)]
RIGHT = [row for number in range(FILES) for row in rows_of("right", number)]
WATERMARK = max(row["s"] for row in LEFT) - 9
"""In the end, in seconds: that of `left` and that of `right`, which ends at the same time."""
IN_TIME = [row for row in LEFT if row["k"] != "late"]
REACH = 5.5
"""How far two rows that are joined may be apart, in seconds."""


def present_version() -> tuple[int, ...]:
    return tuple(map(int, pyspark.__version__.split(".")[:3]))


def stored() -> Path:
    """What the newest PySpark wrote that is not newer than the present one."""
    found = {tuple(map(int, each.name.split("."))): each for each in HERE.glob("[0-9]*")}
    return found[max(version for version in found if version <= present_version())]


# -- what is expected, by kind


def once(*fields: str) -> Callable[[Iterable[dict[str, Any]]], Rows]:
    return lambda rows: sorted({tuple(row[field] for field in fields) for row in rows})


def counts(rows: Iterable[dict[str, Any]]) -> Rows:
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(row["k"], []).append(row["v"])
    return sorted((k, len(values), sum(values)) for k, values in found.items())


def closed(sessions: Iterable[tuple[float, float, str, list[int]]]) -> Rows:
    """Those that end before the watermark: their beginning, key, number of rows and sum."""
    text = "%Y-%m-%d %H:%M:%S.%fZ"
    return sorted(
        (f"{at(begin):{text}}", k, len(values), sum(values))
        for begin, end, k, values in sessions
        if end <= WATERMARK
    )


def windows(rows: Iterable[dict[str, Any]]) -> Rows:
    found: dict[tuple[int, str], list[int]] = {}
    for row in rows:
        found.setdefault((row["s"] // 5 * 5, row["k"]), []).append(row["v"])
    return closed((begin, begin + 5, k, values) for (begin, k), values in found.items())


def sessions() -> Rows:
    gap, found = 4.5, []
    for key in sorted({row["k"] for row in IN_TIME}):
        begin = end = 0.0
        values: list[int] = []
        for row in sorted((row for row in IN_TIME if row["k"] == key), key=lambda row: row["s"]):
            if values and row["s"] > end:
                found.append((begin, end, key, values))
                values = []
            begin, end = begin if values else row["s"], row["s"] + gap
            values = [*values, row["v"]]
        found.append((begin, end, key, values))
    return closed(found)


def within_watermark() -> Rows:
    """Each key once: the watermark passes those of the first file only when the rows of the last one are read."""
    return once("k", "v")(IN_TIME)


def partners(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [other for other in RIGHT if row["k"] == other["k"] and abs(row["s"] - other["s"]) <= REACH]


def left_join() -> Rows:
    """A row without a partner is let out once the watermark is behind all that could be one."""
    pairs: Rows = [(row["id"], other["id"]) for row in IN_TIME for other in partners(row)]
    alone = [row for row in IN_TIME if not partners(row) and row["s"] + REACH < WATERMARK]
    return sorted([*pairs, *((row["id"], None) for row in alone)], key=str)


def by_rows() -> Rows:
    kinds: dict[str, set[int]] = {}
    for row in LEFT:
        kinds.setdefault(row["k"], set()).add(row["v"])
    return [(k, n, len(kinds[k])) for k, n, _ in counts(LEFT)]


def sides_except() -> Rows:
    rows = {(row["id"], row["s"]) for row in IN_TIME if row["s"] <= WATERMARK}
    rows -= {(row["id"], row["s"]) for row in SIDE}
    return sorted((number, f"{at(s):%Y-%m-%d %H:%M:%S.%fZ}") for number, s in rows)


EXPECTED: dict[str, Callable[[], Rows]] = {
    "aggregate_update": lambda: counts(LEFT),
    "aggregate_complete": lambda: counts(LEFT),
    "window": lambda: windows(IN_TIME),
    "session": sessions,
    "distinct": lambda: once("k", "v")(LEFT),
    "deduplicate": lambda: once("id", "k")(LEFT),
    "deduplicate_within": within_watermark,
    "union": lambda: once("k", "v")([*LEFT, *RIGHT]),
    "except": sides_except,
    "inner_join": lambda: sorted((a["id"], b["id"]) for a in LEFT for b in RIGHT if a["k"] == b["k"]),
    "left_join": left_join,
    "semi_join": lambda: sorted((row["id"],) for row in IN_TIME if partners(row)),
    "limit": lambda: [("a",)] * 6,
    "group_state": lambda: counts(LEFT),
    "transform_pandas": lambda: counts({**row, "v": row["id"]} for row in LEFT),
    "transform_rows": by_rows,
    "two_stateful": lambda: windows({row["id"]: row for row in IN_TIME}.values()),
    "two_sources": lambda: counts([*LEFT, *RIGHT]),
}

# -- the run


@pytest.fixture(scope="module", params=[pytest.param("whole", marks=pytest.mark.long), "open"])
def outputs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, class_data_archive: Path
) -> Iterator[dict[str, Any]]:
    """What each query has written before and in the end, by kind, from checkpoints in one state."""
    state: str = request.param
    folder = stored()
    Driver.environment["_SLOTWISE_DRIVER_ARCHIVE"] = str(class_data_archive)
    with home(), bench(tmp_path_factory.mktemp("earlier")) as rig:
        for archive in folder.glob("*.tar.xz"):
            unpack(archive)
        assert {standing(checkpoint_of(kind, state)).is_whole for kind in EXPECTED} == {state == "whole"}
        before = {kind: (query_id(kind, state), rows_in(table_of(kind, state))) for kind in EXPECTED}
        # The batch that is open has the file that it was planned with.
        for number in range(len(BEFORE[state]) + (state == "open"), FILES):
            put(state, number)
        document = json.loads((folder / "document.json").read_text(encoding="utf-8"))
        own = [each for each in document["vertices"] if each["name"].endswith((f"_{state}", "side"))]
        continue_all(rig, {**document, "vertices": own}, state)
        yield {
            kind: (*before[kind], query_id(kind, state), rows_in(table_of(kind, state))) for kind in EXPECTED
        }


def continue_all(rig: Bench, document: dict[str, Any], state: str) -> None:
    rig.checkpoint_dir = HOME / "checkpoint"
    shutil.copy(HERE / "functions.py", rig.artifacts_dir)
    driver = rig.start(document, available_now=True)
    wait_for("the end", lambda: rig.control_plane.of_type("finished") or rig.control_plane.of_type("failed"))
    for failed in rig.control_plane.of_type("failed"):
        whose = [kind for kind in EXPECTED if query_id(kind, state) == failed["query_id"]]
        raise AssertionError(f"{whose or 'the job'}: {failed['error']}")
    assert driver.exit_status() == 0, driver.log


@pytest.mark.parametrize("kind", EXPECTED)
def test_a_checkpoint_of_earlier_code_is_continued(outputs: dict[str, Any], kind: str) -> None:
    query, before, same_query, after = outputs[kind]
    assert same_query == query, "it began anew"
    expected = EXPECTED[kind]()
    assert sorted(after, key=str) == sorted(expected, key=str)
    assert before != after

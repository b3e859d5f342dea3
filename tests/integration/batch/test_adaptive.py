"""What Spark makes of the real bytes of finished inputs: broadcast joins, and skewed parts that are divided."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.batch.harness import KEYS, Regions, written
from tests.integration.listeners import await_listeners

SKEW = "table.optimizer.skewed-join-optimization."
JOINED = "SELECT left.k, n, m FROM left JOIN right ON left.k = right.k"
ROWS_JOINED = sorted((key, number, key * 10) for number, key in enumerate(KEYS))
NO_BROADCAST = {
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.autoBroadcastJoinThreshold": "-1",
}


# Files are small here: without it Spark puts all files of the skewed bucket into one task, and cannot divide that.
SMALL_FILES = {"spark.sql.files.openCostInBytes": "0"}


def last_plan(session: Any) -> str:
    """The physical plan, as it was in the end, of what Spark ran last, but for the tables that it forgot then."""
    store = session._jsparkSession.sharedState().statusStore()
    deadline = time.monotonic() + 60
    while True:
        await_listeners(session.sparkContext)
        runs = store.executionsList()
        found = sorted(
            (runs.apply(index) for index in range(runs.size())), key=lambda run: int(run.executionId())
        )
        plans = [str(run.physicalPlanDescription()) for run in found]
        plan = [one for one in plans if "DropTable" not in one][-1]
        # Spark does not write down every change at once.
        if "== Final Plan ==" in plan or "AdaptiveSparkPlan" not in plan:
            return plan
        assert time.monotonic() < deadline, plan


@pytest.mark.parametrize(
    ("conf", "join"),
    [({}, "BroadcastHashJoin"), (NO_BROADCAST, "SortMergeJoin")],
    ids=["small", "broadcast is off"],
)
def test_a_join_is_by_broadcast_if_a_finished_input_is_small(
    regions: Callable[..., Regions], session: Any, conf: dict[str, str], join: str
) -> None:
    job = regions(("joined", ["left[k]", "right[k]"], JOINED), conf=conf)
    job.run()
    plan = last_plan(session)
    assert join in plan
    assert "Exchange hashpartitioning" not in plan, "either way the rows stay where they are"
    assert written(job) == ROWS_JOINED


@pytest.mark.parametrize("strategy", ["auto", "none"])
def test_a_skewed_part_of_a_join_is_divided(
    regions: Callable[..., Regions], session: Any, strategy: str
) -> None:
    config = {
        SKEW + "strategy": strategy,
        SKEW + "skewed-factor": "1.5",
        SKEW + "skewed-threshold": "2 kb",
    }
    job = regions(
        # In several files, so that there is something to divide.
        ("spread", ["left"], "SELECT /*+ REPARTITION(8) */ k, n FROM left"),
        ("joined", ["spread[k]", "right[k]"], JOINED.replace("left", "spread")),
        config=config,
        conf={**NO_BROADCAST, **SMALL_FILES},
    )
    job.run()
    assert ("skew=true" in last_plan(session)) == (strategy == "auto")
    assert written(job) == ROWS_JOINED
    progress = job.job.state.batch
    assert progress is not None
    found = [(len(one.skewed), one.groups) for one in progress.decisions if one.skewed]
    assert found == ([(1, ())] if strategy == "auto" else [])

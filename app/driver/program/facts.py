"""What is read of a query beside its plan: where its checkpoint is, how many partitions its state has, and whether that
can change."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from app.driver.checkpoints import standing
from app.driver.directories import directory_of
from app.driver.failures import DriverError
from app.driver.repartition import why_impossible
from app.driver.valves.shape import with_partitions
from app.driver.valves.spark import WriterFacts
from app.model.locations import plain_location
from app.model.ownsettings import CHECKPOINT_LOCATION, SHUFFLE_PARTITIONS
from app.model.planned import PlannedVertex
from app.model.state_partitions import PROVIDER_SETTING, ROCKSDB

PLAN_NOTE: Final = "slotwise-plan"
"""In the directory of a query without a checkpoint of the program's: the `plan_digest` of what runs there."""
_NUMBERS = re.compile(r"#\d+L?|@[0-9a-f]+|\b(?:plan_id|id)=\d+")


def checkpoint_of(session: SparkSession, facts: WriterFacts) -> str | None:
    """Where the program wants the checkpoint of a query; None if it does not say.

    Raises:
        DriverError: it would be another place in each attempt.
    """
    place: str | None = facts.options.get("checkpointlocation")
    if not place:
        parent = session.conf.get(CHECKPOINT_LOCATION, None)
        if not parent or not facts.query_name:
            # Without the name of a query Spark would make another directory each time.
            return None
        jvm: Any = session._jvm
        place = str(jvm.org.apache.hadoop.fs.Path(parent, facts.query_name).toString())
    if session.sparkContext.applicationId in place:
        raise DriverError(
            f"the checkpoint {place} has Spark's application id in its name, which is another one in each attempt, so "
            "what the query has counted would be lost; use spark.sparkContext.appName, or leave checkpointLocation out."
        )
    return place


def plan_digest(frame: DataFrame) -> str:
    """Equal for equal plans, in whichever attempt: the numbers that Spark gives are left out."""
    text = _NUMBERS.sub("", str(frame._jdf.queryExecution().analyzed()))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def own_directory(session: SparkSession, checkpoint: str | None) -> Path | None:
    """The directory that ``checkpoint`` is, links followed; None if it is none of this host."""
    place = None if checkpoint is None else directory_of(session, checkpoint)
    return place and place.resolve()


def identity_of(session: SparkSession, checkpoint: str) -> str:
    """By what two locations are one checkpoint."""
    return str(own_directory(session, checkpoint) or plain_location(checkpoint))


def state_partitions_of(session: SparkSession, checkpoint: Path | None) -> int:
    """How many partitions the state of a query has: what its checkpoint says, or else the session."""
    found = standing(checkpoint) if checkpoint is not None else None
    if found is not None and found.planned_partitions is not None:
        return found.planned_partitions
    return int(session.conf.get(SHUFFLE_PARTITIONS))  # type: ignore[arg-type]


def with_facts(
    vertices: Sequence[PlannedVertex],
    session: SparkSession,
    facts: WriterFacts,
    checkpoint: str | None,
    partitions: int,
) -> tuple[PlannedVertex, ...]:
    """``vertices``, as they were read from the plan of a query, with all that is known of them. ``checkpoint`` is the
    one that the program has chosen, and ``partitions`` what its state has."""
    found = with_partitions(vertices, partitions)
    fixed = _why_fixed(session, checkpoint, found)
    *inner, sink = (replace(each, fixed=fixed if each.stateful else None) for each in found)
    return (*inner, replace(sink, checkpoint=checkpoint, path=facts.path or None))


def _why_fixed(
    session: SparkSession, checkpoint: str | None, vertices: Sequence[PlannedVertex]
) -> str | None:
    """Why the state of a query with this checkpoint cannot be redistributed, as a clause; None if it can."""
    if (why := why_impossible()) is not None:
        return why
    if any(each.operator == "GlobalLimit" for each in vertices):
        return "its query has a limit, which counts in one place"
    if checkpoint is not None and directory_of(session, checkpoint) is None:
        return f"its checkpoint {checkpoint} is in no directory of a host, so it cannot be copied by links"
    provider = session.conf.get(PROVIDER_SETTING)
    if provider == ROCKSDB:
        return None
    return f"only state of the RocksDB provider can be redistributed, and {PROVIDER_SETTING} is {provider}"

"""The artifact of the job whose checkpoints are stored here: what they were written with, so nothing of it may change
that changes a plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming import StatefulProcessor

DELAY = "9 seconds"


def marked(rows: DataFrame) -> DataFrame:
    return rows.withWatermark("at", DELAY)


def deduplicated(rows: DataFrame) -> DataFrame:
    return rows.select("id", "k").dropDuplicates()


def deduplicated_in_time(rows: DataFrame) -> DataFrame:
    return rows.dropDuplicates(["id", "at"])


def deduplicated_within(rows: DataFrame) -> DataFrame:
    return rows.dropDuplicatesWithinWatermark(["k", "v"]).select("k", "v")


def by_group_state(rows: DataFrame) -> DataFrame:
    def count(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        n, total = state.get if state.exists else (0, 0)
        for frame in frames:
            n, total = n + len(frame), total + int(frame["v"].sum())
        state.update((n, total))
        yield pd.DataFrame({"k": [key[0]], "n": [n], "total": [total]})

    of_key = rows.select("k", "v").groupBy("k")
    columns, state = "k string, n long, total long", "n long, total long"
    return of_key.applyInPandasWithState(count, columns, state, "update", "NoTimeout")


class ByPandas(StatefulProcessor):
    """Counts rows in a value, and keeps their ids in a list."""

    def init(self, handle: Any) -> None:
        self.n = handle.getValueState("n", "n long")
        self.ids = handle.getListState("ids", "id int")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        new = [int(each) for frame in rows for each in frame["id"]]
        n = (self.n.get()[0] if self.n.exists() else 0) + len(new)
        self.n.update((n,))
        for each in new:
            self.ids.appendValue((each,))
        total = sum(each[0] for each in self.ids.get())
        yield pd.DataFrame({"k": [key[0]], "n": [n], "total": [total]})

    def close(self) -> None:
        pass


def by_pandas(rows: DataFrame) -> DataFrame:
    of_key = rows.select("k", "id").groupBy("k")
    return of_key.transformWithStateInPandas(ByPandas(), "k string, n long, total long", "update", "none")


class ByRows(StatefulProcessor):
    """Counts rows by ``v`` in a map, and says all the counts of its key together."""

    def init(self, handle: Any) -> None:
        self.counts = handle.getMapState("counts", "v int", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in rows:
            before = self.counts.getValue((row.v,))[0] if self.counts.containsKey((row.v,)) else 0
            self.counts.updateValue((row.v,), (before + 1,))
        counts = [each[0] for each in self.counts.values()]
        yield Row(k=key[0], n=sum(counts), kinds=len(counts))

    def close(self) -> None:
        pass


def by_rows(rows: DataFrame) -> DataFrame:
    of_key = rows.select("k", "v").groupBy("k")
    return of_key.transformWithState(ByRows(), "k string, n long, kinds long", "update", "none")

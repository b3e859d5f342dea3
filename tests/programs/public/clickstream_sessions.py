"""Sessions of the users of a web site, closed by silence: applyInPandasWithState with an event-time timeout."""

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

SOURCE_DIR, OUTPUT_DIR, CHECKPOINT_DIR = sys.argv[1:]
INACTIVITY = pd.Timedelta(seconds=30)

event_schema = StructType(
    [
        StructField("user_id", StringType()),
        StructField("page", StringType()),
        StructField("amount", LongType()),
        StructField("event_time", TimestampType()),
    ]
)
session_fields = [
    StructField("start_time", TimestampType()),
    StructField("end_time", TimestampType()),
    StructField("clicks", LongType()),
    StructField("pages", StringType()),
]
state_schema = StructType(session_fields)
output_schema = StructType([StructField("user_id", StringType()), *session_fields])

spark = SparkSession.builder.appName("Clickstream sessionization").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
spark.conf.set("spark.sql.shuffle.partitions", "4")


def closed(user: str, session: tuple) -> pd.DataFrame:
    start, end, clicks, pages = session
    return pd.DataFrame(
        {
            "user_id": [user],
            "start_time": [pd.Timestamp(start)],
            "end_time": [pd.Timestamp(end)],
            "clicks": [clicks],
            "pages": [pages],
        }
    )


def sessionize(key: tuple[Any], pdfs: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    (user_id,) = key
    if state.hasTimedOut:
        session = state.get
        state.remove()
        yield closed(user_id, session)
        return
    session = tuple(state.get) if state.exists else None
    events = pd.concat(list(pdfs), ignore_index=True).sort_values(by="event_time")
    for event in events.itertuples():
        if session is not None and event.event_time - pd.Timestamp(session[1]) > INACTIVITY:
            yield closed(user_id, session)
            session = None
        if session is None:
            session = (event.event_time, event.event_time, 0, event.page)
        start, end, clicks, pages = session
        session = (
            min(pd.Timestamp(start), event.event_time),
            max(pd.Timestamp(end), event.event_time),
            clicks + 1,
            " ".join(sorted({*pages.split(), event.page})),
        )
    state.update(session)
    state.setTimeoutTimestamp(int((session[1] + INACTIVITY).timestamp() * 1000))


clicks = (
    spark.readStream.format("json").schema(event_schema).option("maxFilesPerTrigger", 10).load(SOURCE_DIR)
)
sessions = (
    clicks.withWatermark("event_time", "10 seconds")
    .groupBy("user_id")
    .applyInPandasWithState(
        func=sessionize,
        outputStructType=output_schema,
        stateStructType=state_schema,
        outputMode="append",
        timeoutConf=GroupStateTimeout.EventTimeTimeout,
    )
)
query = (
    sessions.writeStream.format("json")
    .outputMode("append")
    .option("path", OUTPUT_DIR)
    .option("checkpointLocation", CHECKPOINT_DIR)
    .start()
)
print("started", query.id, query.runId, query.name)
query.awaitTermination()

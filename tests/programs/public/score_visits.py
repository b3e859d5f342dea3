"""Model inference on a stream: Arrow and pandas functions, a model that each worker loads once, shared variables."""

import os
import pickle
import sys
import warnings
from collections.abc import Iterator

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["PYSPARK_SUBMIT_ARGS"] = "--conf spark.ui.enabled=false pyspark-shell"
warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.compute as pc  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402
from pyspark.sql import functions as F  # noqa: E402
from scoring_model import Scorer  # noqa: E402

if len(sys.argv) != 4:
    print("Usage: score_visits.py <events> <output> <checkpoint>", file=sys.stderr)
    sys.exit(-1)
EVENTS, OUTPUT, CHECKPOINT = sys.argv[1:]
MODEL = os.path.join(os.path.dirname(OUTPUT.rstrip("/")), "model.pkl")

spark = SparkSession.builder.appName("score-visits").config("spark.sql.shuffle.partitions", 8).getOrCreate()
sc = spark.sparkContext
sc.setLogLevel("ERROR")
sc.addPyFile(os.path.join(os.path.dirname(os.path.abspath(__file__)), "scoring_model.py"))

with open(MODEL, "wb") as f:
    pickle.dump(Scorer(weights=[3, 7, 11], bias=5), f)

segments = sc.broadcast({f"page-{n}": ["home", "shop", "help"][n % 3] for n in range(10)})
scored_rows = sc.accumulator(0)
unknown_pages = sc.accumulator(0)
_model = None


def get_model():
    global _model
    if _model is None:
        print(f"loading the model in {os.getpid()}", file=sys.stderr)
        with open(MODEL, "rb") as file:
            _model = pickle.load(file)
    return _model


def only_amounts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.filter(pc.greater(batch.column("amount"), 9))


def features(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        known = frame["page"].map(segments.value)
        unknown_pages.add(int(known.isna().sum()))
        yield frame.assign(segment=known.fillna("other"), weekday=frame["at"].dt.dayofweek.astype("int64"))


@F.pandas_udf("long")
def score(columns: Iterator[tuple[pd.Series, pd.Series, pd.Series]]) -> Iterator[pd.Series]:
    model = get_model()
    for id_, amount, weekday in columns:
        result = model.predict(np.column_stack([id_, amount, weekday]))
        scored_rows.add(len(result))
        yield pd.Series(result)


schema = "id long, visit string, page string, amount long, at timestamp"
events = spark.readStream.schema(schema).option("maxFilesPerTrigger", 15).json(EVENTS)
scored = (
    events.mapInArrow(only_amounts, schema)
    .mapInPandas(features, schema + ", segment string, weekday long")
    .withColumn("score", score("id", "amount", "weekday"))
)
result = (
    scored.withWatermark("at", "10 seconds")
    .groupBy(F.window("at", "15 seconds"), "segment")
    .agg(F.count("*").alias("n"), F.sum("score").alias("total"), F.max("score").alias("best"))
    .selectExpr("window.start AS start", "segment", "n", "total", "best")
)
query = result.writeStream.format("parquet").option("checkpointLocation", CHECKPOINT).start(OUTPUT)
try:
    query.awaitTermination()
finally:
    print(f"RESULT scored {scored_rows.value} rows, {unknown_pages.value} of unknown pages")

"""Centroids that are learnt batch by batch with NumPy; the model is a global, and a file beside the checkpoint."""

import json
import os
from pathlib import Path

import numpy as np
import typer
from pyspark.sql import SparkSession
from rich.console import Console

K = 10
console = Console(width=100)
model = {"last_batch": -1, "counts": np.zeros(K, dtype=np.int64), "sums": np.zeros((K, 2), dtype=np.int64)}
model_file = None


def load_model():
    global model
    if model_file.exists():
        saved = json.loads(model_file.read_text())
        model = {
            "last_batch": saved["last_batch"],
            "counts": np.array(saved["counts"], dtype=np.int64),
            "sums": np.array(saved["sums"], dtype=np.int64),
        }
        console.log(f"model of batch {model['last_batch']} loaded")


def save_model():
    text = json.dumps(
        {name: value if isinstance(value, int) else value.tolist() for name, value in model.items()}
    )
    temporary = model_file.with_suffix(".tmp")
    temporary.write_text(text)
    os.replace(temporary, model_file)


def learn(batch_df, batch_id):
    global model
    if batch_id <= model["last_batch"]:
        console.log(f"batch {batch_id} was learnt before")
        return
    points = batch_df.selectExpr("int(split(page, '-')[1]) AS k", "amount", "id % 1000 AS other").toPandas()
    keys = points["k"].to_numpy(dtype=np.int64)
    features = points[["amount", "other"]].to_numpy(dtype=np.int64)
    sums = model["sums"].copy()
    np.add.at(sums, keys, features)
    counts = model["counts"] + np.bincount(keys, minlength=K)
    model = {"last_batch": int(batch_id), "counts": counts, "sums": sums}
    save_model()
    with np.errstate(divide="ignore", invalid="ignore"):
        centroids = sums / counts[:, None]
    console.log(f"batch {batch_id}: {len(points)} points, first centroid {centroids[0].round(2)}")


def main(data: Path, checkpoint: Path, per_trigger: int = 5):
    global model_file
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    model_file = checkpoint.parent / "model.json"
    load_model()
    spark = SparkSession.builder.appName("online learning").getOrCreate()
    spark.conf.set("spark.sql.execution.arrow.pyspark.enabled", "true")
    points = (
        spark.readStream.schema("id BIGINT, page STRING, amount BIGINT")
        .option("maxFilesPerTrigger", per_trigger)
        .json(str(data))
    )
    query = points.writeStream.foreachBatch(learn).option("checkpointLocation", str(checkpoint)).start()
    while query.isActive:
        query.awaitTermination(10)


if __name__ == "__main__":
    typer.run(main)

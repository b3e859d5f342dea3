"""A forest that is trained on a file when the program starts classifies a stream; its predictions are counted."""

import os
import sys

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["PYSPARK_SUBMIT_ARGS"] = "--driver-memory 600m --conf spark.ui.enabled=false pyspark-shell"

from pyspark.ml import Pipeline
from pyspark.ml.classification import RandomForestClassifier
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.feature import IndexToString, StringIndexer, VectorAssembler
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count, window
from pyspark.sql.functions import sum as sum_

TRAINING = os.path.join(os.path.dirname(os.path.realpath(__file__)), "visit_training.csv")


def train(spark):
    data = spark.read.csv(TRAINING, header=True, inferSchema=True).cache()
    data.printSchema()
    training, test = data.randomSplit([0.8, 0.2], seed=42)
    labels = StringIndexer(inputCol="kind", outputCol="label").fit(data)
    pages = StringIndexer(inputCol="page", outputCol="page_index", handleInvalid="keep").fit(data)
    assembler = VectorAssembler(inputCols=["page_index", "amount"], outputCol="features")
    forest = RandomForestClassifier(labelCol="label", featuresCol="features", numTrees=7, maxDepth=4, seed=42)
    names = IndexToString(inputCol="prediction", outputCol="predicted", labels=labels.labels)
    model = Pipeline(stages=[labels, pages, assembler, forest, names]).fit(training)
    accuracy = MulticlassClassificationEvaluator(metricName="accuracy").evaluate(model.transform(test))
    print(f"RESULT accuracy of {labels.labels}: {accuracy:.3f}")
    data.unpersist()
    return model


def main(input_dir, output_dir, checkpoint_dir):
    spark = (
        SparkSession.builder.appName("visit classes").config("spark.sql.shuffle.partitions", 4).getOrCreate()
    )
    model = train(spark)
    stream = spark.readStream.schema("id INT, visit STRING, page STRING, amount INT, at TIMESTAMP").json(
        input_dir
    )
    predictions = model.transform(stream.withWatermark("at", "10 seconds"))
    counts = (
        predictions.groupBy(window(col("at"), "20 seconds").alias("w"), "predicted")
        .agg(count("*").alias("n"), sum_("amount").alias("amount"))
        .select(col("w.start").alias("start"), "predicted", "n", "amount")
    )
    query = (
        counts.writeStream.outputMode("append")
        .format("json")
        .option("checkpointLocation", checkpoint_dir)
        .option("path", output_dir)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The Python vertex of the flights example: the routes of the aggregate, with their airlines' names."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def with_airline(routes: DataFrame, airlines: DataFrame) -> DataFrame:
    """Join each route with its airline, and tell how many of a thousand arrivals were late (rounded down)."""
    named = routes.join(F.broadcast(airlines.withColumnRenamed("name", "airline")), "carrier", "left")
    # div is integer division, and null where nothing has arrived yet.
    return named.withColumn("late_per_thousand", F.expr("(late * 1000) div nullif(arrived, 0)"))

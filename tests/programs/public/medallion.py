"""Bronze, silver and gold as classes of a package, started in a loop over a YAML file."""

import argparse
import logging
import logging.config
import os
from string import Template

import yaml
from lakehouse import JOBS
from pyspark.sql import SparkSession

logger = logging.getLogger("lakehouse.main")


def load_config(path: str, **places: str) -> dict:
    with open(path, encoding="utf-8") as f:
        return yaml.safe_load(Template(f.read()).substitute(places))


def get_spark(settings: dict) -> SparkSession:
    builder = SparkSession.builder.appName("medallion")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--landing", required=True)
    parser.add_argument("--lake", required=True)
    parser.add_argument("--checkpoints", required=True)
    parser.add_argument(
        "--config", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "medallion.yaml")
    )
    return parser.parse_args()


def main() -> int:
    args = parse_args()
    config = load_config(args.config, landing=args.landing, lake=args.lake)
    logging.config.dictConfig(config["logging"])
    spark = get_spark(config["spark"])
    queries = []
    for name, conf in config["jobs"].items():
        conf["checkpoint"] = os.path.join(args.checkpoints, name)
        queries.append(JOBS[conf["class"]](spark, name, conf).run())
    logger.info("running: %s", [query.name for query in spark.streams.active])
    for query in queries:
        query.awaitTermination()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""A TPC-H query on plain Spark, as its author would run it without Slotwise: one process, from start to answer.

    python benchmarks/_plain_spark.py DATA OUT SLOTS MEMORY_MB < query.sql

Adaptive execution and all defaults; the file system without checksums and the heap as for Slotwise's drivers. Says
`written` when the answer is.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main() -> None:
    data, out, slots, memory_mb = sys.argv[1:]
    builder = SparkSession.builder.master(f"local[{slots}]").appName("plain")
    for key, value in {
        "spark.driver.memory": f"{memory_mb}m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    for table in sorted(Path(data).glob("*.parquet")):
        session.read.parquet(str(table)).createOrReplaceTempView(table.stem)
    frame = session.sql(sys.stdin.read())
    names = [f"c{index}" for index in range(len(frame.columns))]
    frame.toDF(*names).write.mode("overwrite").parquet(out)
    print("written", flush=True)


if __name__ == "__main__":
    main()

"""The right answers: the queries as TPC-H writes them, run by DuckDB over the same Parquet files.

``python examples/tpch/answers.py q3 --data /data/sf1 --out /tmp/tpch-q3`` says whether a job's result is right.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb

TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")

# The columns are in the order of the job graphs' results.
QUERIES = {
    "q1": "SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice), "
    "sum(l_extendedprice * (1 - l_discount)), sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)), "
    "avg(l_quantity), avg(l_extendedprice), avg(l_discount), count(*) FROM lineitem "
    "WHERE l_shipdate <= DATE '1998-12-01' - INTERVAL 90 DAY GROUP BY ALL",
    "q3": "SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority "
    "FROM customer, orders, lineitem WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey "
    "AND l_orderkey = o_orderkey AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15' "
    "GROUP BY l_orderkey, o_orderdate, o_shippriority ORDER BY revenue DESC, o_orderdate LIMIT 10",
    "q5": "SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue "
    "FROM customer, orders, lineitem, supplier, nation, region WHERE c_custkey = o_custkey "
    "AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey AND c_nationkey = s_nationkey "
    "AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'ASIA' "
    "AND o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1995-01-01' GROUP BY n_name",
    "q9": "SELECT n_name, year(o_orderdate), "
    "sum(l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity) "
    "FROM part, supplier, lineitem, partsupp, orders, nation WHERE s_suppkey = l_suppkey "
    "AND ps_suppkey = l_suppkey AND ps_partkey = l_partkey AND p_partkey = l_partkey "
    "AND o_orderkey = l_orderkey AND s_nationkey = n_nationkey AND p_name LIKE '%green%' GROUP BY ALL",
    "q18": "SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) "
    "FROM customer, orders, lineitem WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem "
    "GROUP BY l_orderkey HAVING sum(l_quantity) > 300) AND c_custkey = o_custkey "
    "AND o_orderkey = l_orderkey GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice "
    "ORDER BY o_totalprice DESC, o_orderdate LIMIT 100",
    "q21": "SELECT s_name, count(*) AS numwait FROM supplier, lineitem l1, orders, nation "
    "WHERE s_suppkey = l1.l_suppkey AND o_orderkey = l1.l_orderkey AND o_orderstatus = 'F' "
    "AND l1.l_receiptdate > l1.l_commitdate "
    "AND EXISTS (SELECT * FROM lineitem l2 WHERE l2.l_orderkey = l1.l_orderkey "
    "AND l2.l_suppkey <> l1.l_suppkey) "
    "AND NOT EXISTS (SELECT * FROM lineitem l3 WHERE l3.l_orderkey = l1.l_orderkey "
    "AND l3.l_suppkey <> l1.l_suppkey AND l3.l_receiptdate > l3.l_commitdate) "
    "AND s_nationkey = n_nationkey AND n_name = 'SAUDI ARABIA' GROUP BY s_name "
    "ORDER BY numwait DESC, s_name LIMIT 100",
}

Row = tuple[Any, ...]


def expected(query: str, data: Path) -> list[Row]:
    """The answer over the files of ``data``, sorted."""
    with duckdb.connect() as database:
        for table in TABLES:
            database.read_parquet(str(data / f"{table}.parquet")).create_view(table)
        return _sorted(database.execute(QUERIES[query]).fetchall())


def found(out: Path) -> list[Row]:
    """What a job's Parquet sink holds, sorted."""
    files = sorted(str(path) for path in out.glob("*.parquet"))
    if not files:
        return []
    with duckdb.connect() as database:
        return _sorted(database.execute("SELECT * FROM read_parquet(?)", [files]).fetchall())


def _sorted(rows: Sequence[Row]) -> list[Row]:
    """Decimals and floats alike with six digits: the two engines give averages other types."""
    return sorted((tuple(_comparable(value) for value in row) for row in rows), key=repr)


def _comparable(value: Any) -> Any:
    if isinstance(value, Decimal | float):
        # The last digit of an average may be rounded the other way.
        return float(f"{value:.4f}")
    return int(value) if isinstance(value, int) else value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("query", choices=sorted(QUERIES))
    parser.add_argument("--data", type=Path, required=True, help="the directory of the Parquet files")
    parser.add_argument("--out", type=Path, required=True, help="the directory of the job's result")
    options = parser.parse_args()
    right, rows = expected(options.query, options.data), found(options.out)
    print("exact" if rows == right else f"NOT exact: {len(rows)} rows, {len(right)} expected")
    return 0 if rows == right else 1


if __name__ == "__main__":
    sys.exit(main())

"""Six TPC-H queries as batch job graphs, with a durable result at every join.

``python examples/tpch/graphs.py q3 --data /data/sf1 --out /tmp/tpch-q3 > tpch-q3.json`` writes one, for
``slotwise submit``. The data are the Parquet files of ``tpchgen-cli parquet``: ``lineitem.parquet`` and so on.

A query is written as (name, inputs, SQL). An input is a name, read as it is produced (PIPELINED), or a name with keys
in brackets, which waits for a result that is partitioned by them: ``orders[o_orderkey]``; ``nations[*]`` is broadcast.

Amounts that cross a boundary are cast to DECIMAL(18, 4): nothing is lost, and Spark keeps them in 8 bytes. The type
that the multiplication gives them has 32 digits, which costs more to write and to read than everything else.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

Vertex = tuple[str, list[str], str]

TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")

GRAPHS: dict[str, list[Vertex]] = {
    "q1": [
        (
            "partial",
            ["lineitem"],
            "SELECT l_returnflag, l_linestatus, sum(l_quantity) AS qty, sum(l_extendedprice) AS price, "
            "sum(l_extendedprice * (1 - l_discount)) AS disc, "
            "sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS charge, sum(l_discount) AS discount, "
            "count(*) AS n FROM lineitem WHERE l_shipdate <= DATE '1998-09-02' GROUP BY l_returnflag, l_linestatus",
        ),
        (
            "result",
            ["partial[l_returnflag,l_linestatus]"],
            "SELECT l_returnflag, l_linestatus, sum(qty) AS sum_qty, sum(price) AS sum_base_price, "
            "sum(disc) AS sum_disc_price, sum(charge) AS sum_charge, sum(qty) / sum(n) AS avg_qty, "
            "sum(price) / sum(n) AS avg_price, sum(discount) / sum(n) AS avg_disc, sum(n) AS count_order "
            "FROM partial GROUP BY l_returnflag, l_linestatus",
        ),
    ],
    "q3": [
        ("buyers", ["customer"], "SELECT c_custkey FROM customer WHERE c_mktsegment = 'BUILDING'"),
        (
            "early",
            ["orders", "buyers[*]"],
            "SELECT o_orderkey, o_orderdate, o_shippriority FROM orders JOIN buyers ON o_custkey = c_custkey "
            "WHERE o_orderdate < DATE '1995-03-15'",
        ),
        (
            "late",
            ["lineitem"],
            "SELECT l_orderkey, CAST(l_extendedprice * (1 - l_discount) AS DECIMAL(18, 4)) AS rev FROM lineitem "
            "WHERE l_shipdate > DATE '1995-03-15'",
        ),
        (
            "result",
            ["early[o_orderkey]", "late[l_orderkey]"],
            "SELECT l_orderkey, sum(rev) AS revenue, o_orderdate, o_shippriority FROM early JOIN late "
            "ON l_orderkey = o_orderkey GROUP BY l_orderkey, o_orderdate, o_shippriority "
            "ORDER BY revenue DESC, o_orderdate LIMIT 10",
        ),
    ],
    "q5": [
        (
            "nations",
            ["nation", "region"],
            "SELECT n_nationkey, n_name FROM nation JOIN region ON n_regionkey = r_regionkey WHERE r_name = 'ASIA'",
        ),
        (
            "suppliers",
            ["supplier", "nations[*]"],
            "SELECT s_suppkey, s_nationkey, n_name FROM supplier JOIN nations ON s_nationkey = n_nationkey",
        ),
        ("customers", ["customer"], "SELECT c_custkey, c_nationkey FROM customer"),
        (
            "year",
            ["orders"],
            "SELECT o_orderkey, o_custkey FROM orders "
            "WHERE o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1995-01-01'",
        ),
        (
            "bought",
            ["customers[c_custkey]", "year[o_custkey]"],
            "SELECT o_orderkey, c_nationkey FROM customers JOIN year ON c_custkey = o_custkey",
        ),
        (
            "sold",
            ["lineitem", "suppliers[*]"],
            "SELECT l_orderkey, s_nationkey, n_name, "
            "CAST(l_extendedprice * (1 - l_discount) AS DECIMAL(18, 4)) AS rev FROM lineitem "
            "JOIN suppliers ON l_suppkey = s_suppkey",
        ),
        (
            "result",
            ["bought[o_orderkey]", "sold[l_orderkey]"],
            "SELECT n_name, sum(rev) AS revenue FROM bought JOIN sold "
            "ON o_orderkey = l_orderkey AND c_nationkey = s_nationkey GROUP BY n_name",
        ),
    ],
    "q9": [
        ("green", ["part"], "SELECT p_partkey FROM part WHERE p_name LIKE '%green%'"),
        (
            "amounts",
            ["lineitem", "green[*]", "partsupp", "supplier", "nation"],
            "SELECT l_orderkey, n_name AS nation, "
            "CAST(l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity AS DECIMAL(18, 4)) AS amount "
            "FROM lineitem JOIN green ON l_partkey = p_partkey "
            "JOIN partsupp ON ps_partkey = l_partkey AND ps_suppkey = l_suppkey "
            "JOIN supplier ON s_suppkey = l_suppkey JOIN nation ON s_nationkey = n_nationkey",
        ),
        ("years", ["orders"], "SELECT o_orderkey, year(o_orderdate) AS o_year FROM orders"),
        (
            "result",
            ["amounts[l_orderkey]", "years[o_orderkey]"],
            "SELECT nation, o_year, sum(amount) AS sum_profit FROM amounts JOIN years ON l_orderkey = o_orderkey "
            "GROUP BY nation, o_year",
        ),
    ],
    "q18": [
        ("quantities", ["lineitem"], "SELECT l_orderkey, l_quantity FROM lineitem"),
        ("prices", ["orders"], "SELECT o_orderkey, o_custkey, o_orderdate, o_totalprice FROM orders"),
        (
            "large",
            ["quantities[l_orderkey]", "prices[o_orderkey]"],
            "SELECT o_orderkey, o_custkey, o_orderdate, o_totalprice, quantity FROM prices JOIN "
            "(SELECT l_orderkey, sum(l_quantity) AS quantity FROM quantities GROUP BY l_orderkey "
            "HAVING sum(l_quantity) > 300) ON l_orderkey = o_orderkey",
        ),
        (
            "result",
            ["customer", "large[*]"],
            "SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, quantity FROM customer JOIN large "
            "ON c_custkey = o_custkey ORDER BY o_totalprice DESC, o_orderdate LIMIT 100",
        ),
    ],
    "q21": [
        (
            "suppliers",
            ["supplier", "nation"],
            "SELECT s_suppkey, s_name FROM supplier JOIN nation ON s_nationkey = n_nationkey "
            "WHERE n_name = 'SAUDI ARABIA'",
        ),
        (
            "lines",
            ["lineitem"],
            "SELECT l_orderkey, l_suppkey, l_receiptdate > l_commitdate AS late FROM lineitem",
        ),
        ("failed", ["orders"], "SELECT o_orderkey FROM orders WHERE o_orderstatus = 'F'"),
        (
            "result",
            ["lines[l_orderkey]", "failed[o_orderkey]", "suppliers[*]"],
            "SELECT s_name, count(*) AS numwait FROM lines l1 JOIN failed ON o_orderkey = l1.l_orderkey "
            "JOIN suppliers ON s_suppkey = l1.l_suppkey WHERE l1.late "
            "AND EXISTS (SELECT * FROM lines l2 WHERE l2.l_orderkey = l1.l_orderkey "
            "AND l2.l_suppkey <> l1.l_suppkey) "
            "AND NOT EXISTS (SELECT * FROM lines l3 WHERE l3.l_orderkey = l1.l_orderkey "
            "AND l3.l_suppkey <> l1.l_suppkey AND l3.late) "
            "GROUP BY s_name ORDER BY numwait DESC, s_name LIMIT 100",
        ),
    ],
}


def document(
    query: str,
    data: Path,
    out: Path,
    *,
    upper: int = 16,
    config: dict[str, str] | None = None,
    blocking: bool = True,
) -> dict[str, Any]:
    """The job graph document of ``query``. Without ``blocking`` all of it is one region."""
    vertices: list[dict[str, Any]] = []
    graph = GRAPHS[query]
    used = {name for _, inputs, _ in graph for name in inputs if name in TABLES}
    for table in sorted(used):
        source = {"format": "parquet", "path": str(data / f"{table}.parquet")}
        vertices.append({"name": table, "source": source})
    for name, inputs, sql in graph:
        edges = [_edge(one, blocking) for one in inputs]
        vertices.append({"name": name, "inputs": edges, "sql": sql})
    vertices.append({"name": "store", "inputs": ["result"], "sink": {"format": "parquet", "path": str(out)}})
    for vertex in vertices:
        vertex["parallelism"] = upper
    return {"name": f"tpch-{query}", "type": "BATCH", "config": dict(config or {}), "vertices": vertices}


def _edge(text: str, blocking: bool) -> str | dict[str, Any]:
    name, bracket, keys = text.rstrip("]").partition("[")
    if not bracket:
        return name
    edge: dict[str, Any] = {"vertex": name, "exchange": "BLOCKING" if blocking else "PIPELINED"}
    if keys == "*":
        return {**edge, "partitioner": "BROADCAST"}
    return {**edge, "partitioner": "HASH", "keys": keys.split(",")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("query", choices=sorted(GRAPHS))
    parser.add_argument("--data", type=Path, required=True, help="the directory of the Parquet files")
    parser.add_argument("--out", type=Path, required=True, help="the directory for the result")
    parser.add_argument("--upper", type=int, default=16, help="upper bound of parallelism of every vertex")
    parser.add_argument("--pipelined", action="store_true", help="no results between vertices: one region")
    parser.add_argument("--decider", choices=("flip-187", "even-data"), default="flip-187")
    options = parser.parse_args()
    config = {"slotwise.batch.parallelism-decider": options.decider}
    graph = document(
        options.query,
        options.data.absolute(),
        options.out.absolute(),
        upper=options.upper,
        config=config,
        blocking=not options.pipelined,
    )
    print(json.dumps(graph, indent=2))


if __name__ == "__main__":
    main()

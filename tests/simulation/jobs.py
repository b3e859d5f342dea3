"""The jobs of the simulated world."""

from __future__ import annotations

import random
from typing import Any

from app.documents.graph import parse_document
from app.model.jobgraph import MAX_PARALLELISM_LIMIT, JobGraph, JobType
from tests.simulation.programs import is_program, program_graph
from tests.simulation.rules import need_slots

MOST_SLOTS_NEEDED = 3
"""No lower bound is above it, so no batch job needs more slots."""

PARTITIONS = (4, 6, 8, 12)
"""Numbers of state partitions that are asked for; all jobs begin with 8."""

_SCHEDULER = "jobmanager.adaptive-scheduler."
_STABILIZATION = _SCHEDULER + "submission.resource-stabilization-timeout"


_FRAGILE = "-fragile"

PLAIN = "plain"
"""A vertex without state, of which that is not known before Spark has analysed it."""

STATEFUL = ("counts", "again")

SIDE_SINK = "side"
"""The second sink of a job that has two, hence two queries."""


def limit_of(name: str) -> int | None:
    """The parallelism above which a job of this name fails in its first batch, None if there is none."""
    _, fragile, limit = name.partition(_FRAGILE)
    return int(limit) if fragile else None


def random_graph(
    rng: random.Random, number: int, *, batch: bool, fragile: bool = False, seed: int = 0
) -> JobGraph:
    """A job of some vertices, with options of all sorts. A ``fragile`` one starts at most at its limit.

    ``seed``: of what decides whether it has a second query, apart from ``rng``.
    """
    stabilization = rng.choice((None, "1 s", "10 s"))
    config = {
        **({} if stabilization is None else {_STABILIZATION: stabilization}),
        _SCHEDULER + "submission.resource-wait-timeout": rng.choice(("-1", "300 s")),
        _SCHEDULER + "executing.cooldown-after-rescaling": rng.choice(("0 ms", "5 s", "30 s")),
        _SCHEDULER + "executing.resource-stabilization-timeout": rng.choice(("0 ms", "5 s", "60 s")),
        "slotwise.rescale.apply-timeout": rng.choice(("3 s", "20 s", "60 s")),
        "slotwise.driver.stop-timeout": rng.choice(("2 s", "10 s", "30 s")),
        "slotwise.driver.start-timeout": rng.choice(("6 s", "30 s", "120 s")),
        "slot.idle.timeout": rng.choice(("1 s", "10 s", "50 s")),
    }
    if batch:
        return _batch_graph(rng, number, config)
    config["slotwise.state.repartition.timeout"] = rng.choice(("2 s", "60 s"))
    if rng.random() < 0.2:
        config["restart-strategy.type"] = "fixed-delay"
        config["restart-strategy.fixed-delay.attempts"] = "3"
    if rng.random() < 0.1 and not fragile:
        config["slotwise.rollback.watch-period"] = "0 ms"
    limit = rng.choice((2, 3)) if fragile else 4
    vertices = _main_query(rng, random.Random(f"plain/{seed}/{number}"), limit)
    side = random.Random(f"second query/{seed}/{number}")
    if not fragile and side.random() < 0.4:
        vertices.append({"name": SIDE_SINK, "inputs": ["events"], "sink": {"format": "noop"}})
        config["slotwise.failure.local-timeout"] = side.choice(("5 s", "20 s", "60 s"))
    name = f"job-{number}" + ("-bounded" if rng.random() < 0.15 else "")
    if fragile:
        name = f"job-{number}{_FRAGILE}{limit}"
    if not fragile and is_program(seed, number):
        return program_graph(name, config, seed, number)
    return parse_document({"name": name, "type": "STREAMING", "config": config, "vertices": vertices})


def _main_query(rng: random.Random, plain: random.Random, limit: int) -> list[dict[str, Any]]:
    """``plain`` decides what does not belong to all worlds."""
    inner = rng.random() < 0.4
    vertices: list[dict[str, Any]] = [
        {"name": "events", "source": {"format": "rate"}, "parallelism": rng.randint(1, limit)},
        {
            "name": "counts",
            "inputs": ["events"],
            "sql": "SELECT value % 10 AS k, count(*) AS n FROM events GROUP BY value % 10",
            "parallelism": rng.randint(1, limit),
            "maxParallelism": 8,
        },
    ]
    last = "counts"
    if plain.random() < 0.4:
        vertices.append(
            {
                "name": PLAIN,
                "inputs": [last],
                "sql": "SELECT k, n FROM counts",
                "parallelism": plain.randint(1, limit),
            }
        )
        last = PLAIN
    if inner:
        vertices.append(
            {
                "name": "again",
                "inputs": [last],
                "sql": f"SELECT k % 2 AS j, count(*) AS n FROM {last} GROUP BY k % 2",
                "parallelism": rng.randint(1, limit),
                "maxParallelism": 8,
            }
        )
        last = "again"
    vertices.append(
        {
            "name": "store",
            "inputs": [last],
            "sink": {"format": "noop", "outputMode": "complete"},
            "parallelism": rng.randint(1, limit),
            "slotSharingGroup": rng.choice(("default", "sinks")),
        }
    )
    return vertices


def is_wide(graph: JobGraph) -> bool:
    """Whether bounds of the job may ask for more than Spark turns out to allow: of few, since the rest needs slots."""
    return graph.name.split("-")[1] == "1" and PLAIN in graph.by_name


def random_bounds(rng: random.Random, graph: JobGraph) -> tuple[dict[str, tuple[int, int]], dict[str, int]]:
    """Bounds for every vertex by name, and numbers of state partitions for some."""
    wanted: dict[str, tuple[int, int]] = {}
    partitions: dict[str, int] = {}
    asked = need_slots(graph)
    leaves_out = len(asked) < len(graph.vertices) and rng.random() < 0.5
    for vertex in graph.vertices:
        if leaves_out and vertex.id not in asked:
            # Its query has ended.
            continue
        if vertex.name == PLAIN:
            # Without a change of what ``rng`` decides in worlds without it. The last part of its state is None, whose
            # hash differs from process to process.
            own = random.Random(hash(rng.getstate()[1]))
            lower = own.choice((1, 1, 1, 2, MOST_SLOTS_NEEDED))
            uppers = (200, MAX_PARALLELISM_LIMIT) if is_wide(graph) else (14,)
            wanted[vertex.name] = (lower, own.choice((own.randint(lower, 8), *uppers)))
            continue
        lower = rng.choice((1, 1, 1, 2, MOST_SLOTS_NEEDED))
        # A BATCH job keeps no state, and says so.
        asks = vertex.stateful or (
            graph.type is JobType.BATCH and len(vertex.inputs) > 1 and not vertex.is_sink
        )
        most = PARTITIONS[-1] if asks and rng.random() < 0.5 else 8
        wanted[vertex.name] = (lower, max(lower, rng.randint(1, most)))
        if not asks:
            wanted[vertex.name] = (lower, min(vertex.max_parallelism, wanted[vertex.name][1]))
        elif rng.random() < 0.3 and (number := rng.choice(PARTITIONS)) >= wanted[vertex.name][1]:
            partitions[vertex.name] = number
    if rng.random() < 0.3:
        return dict.fromkeys(wanted, (1, 4)), {}
    return wanted, partitions


def _batch_graph(rng: random.Random, number: int, config: dict[str, str]) -> JobGraph:
    """Some sources, some vertices that read one or two of those before them, and a sink for all that is left."""
    for name in list(config):
        if ".executing." in name or name.endswith(("stabilization-timeout", "apply-timeout")):
            del config[name]
    config["slotwise.batch.parallelism-decider"] = rng.choice(("flip-187", "even-data"))
    config["restart-strategy.exponential-delay.initial-backoff"] = rng.choice(("1 ms", "1 s"))
    names = [f"s{index}" for index in range(rng.randint(1, 3))]
    vertices: list[dict[str, Any]] = [
        {"name": name, "source": {"format": "parquet", "path": "/data"}, "parallelism": rng.randint(1, 4)}
        for name in names
    ]
    unread = list(names)

    def read(name: str, inputs: list[str]) -> None:
        edges = [_edge(rng, one) for one in inputs]
        sql = f"SELECT 1 AS k FROM {', '.join(inputs)}"
        upper = rng.choice((1, 4, 8))
        lower = min(upper, rng.choice((1, 1, 2, MOST_SLOTS_NEEDED)))
        vertices.append(
            {"name": name, "inputs": edges, "sql": sql, "parallelism": upper, "lowerBound": lower}
        )
        unread[:] = [one for one in unread if one not in inputs] + [name]
        names.append(name)

    for index in range(rng.randint(1, 4)):
        read(f"v{index}", rng.sample(names, rng.randint(1, min(2, len(names)))))
    if len(unread) > 1:
        read("all", list(unread))
    vertices.append({"name": "store", "inputs": [unread[0]], "sink": {"format": "noop"}})
    return parse_document({"name": f"job-{number}", "type": "BATCH", "config": config, "vertices": vertices})


def _edge(rng: random.Random, name: str) -> dict[str, Any]:
    edge: dict[str, Any] = {"vertex": name, "exchange": "BLOCKING" if rng.random() < 0.7 else "PIPELINED"}
    how = rng.choice(("keys", "broadcast", "none"))
    if how == "keys":
        edge["keys"] = rng.choice((["k"], ["k"], ["j"], ["k", "j"]))
    elif how == "broadcast":
        edge["partitioner"] = "BROADCAST"
    return edge

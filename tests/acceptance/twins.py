"""Graph documents that are the same jobs as programs in tests/programs: the same sources, aggregates and sinks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.acceptance.deployment import Deployment
from tests.acceptance.programs import CONFIG, Place, Program

ONLY = "counts"
"""The sink of the query that has its checkpoint and its output without a folder of its own."""
SOURCE = {
    "format": "json",
    "schema": "id BIGINT, visit STRING, page STRING, amount BIGINT, at TIMESTAMP",
    "options": {"maxFilesPerTrigger": 20},
}
LARGE = (
    {
        "name": "large amounts",
        "inputs": ["events"],
        "sql": "SELECT id, page, amount FROM events WHERE amount >= 950",
    },
    {"name": "large", "inputs": ["large amounts"], "sink": {"format": "csv", "options": {"header": True}}},
)


def written(program: Program, place: Place, text: str) -> Path:
    """The document for ``program``, which has this ``text``, and its artifact, in ``place``. Its Python vertex is the
    expression of the program between parentheses that makes the aggregate."""
    aggregate = program.queries[0] or ONLY
    lines = [line for line in text.splitlines() if line.startswith(("from pyspark", "print("))]
    expression = text.split(f"\n{aggregate} = (", 1)[1].split("\n)", 1)[0]
    lines.append(f"def aggregated(events): return ({expression})\n")
    place.own.mkdir(exist_ok=True)
    (place.own / "aggregates.py").write_text("\n".join(lines), encoding="utf-8")
    vertices: list[dict[str, Any]] = [
        {"name": "events", "source": {**SOURCE, "path": str(place.input / "events")}},
        {"name": "aggregates", "inputs": ["events"], "python": "aggregates:aggregated"},
        {"name": aggregate, "inputs": ["aggregates"], "sink": {"format": "parquet"}},
        *(LARGE if "large" in program.queries else ()),
    ]
    for vertex in vertices:
        if "sink" in vertex:
            folder = place.output / (vertex["name"] if vertex["name"] in program.queries else "")
            vertex["sink"] = {**vertex["sink"], "path": str(folder)}
    document = {"name": program.script, "type": "STREAMING", "artifacts": ["aggregates.py"], "config": CONFIG}
    file = place.own / "document.json"
    file.write_text(json.dumps({**document, "vertices": vertices}), encoding="utf-8")
    return file


def link_checkpoints(deployment: Deployment, program: Program, place: Place) -> None:
    """Let the checkpoints of the document that runs be where those of ``program`` are in ``place``."""
    own = deployment.data_dir / "jobs" / deployment.job_id / "checkpoint"
    ids = {one["name"]: one["id"] for one in deployment.job()["vertices"]}
    for query in program.queries:
        link = place.checkpoint / query
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(own / ids[query or ONLY])

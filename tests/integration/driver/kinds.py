"""One job of each kind, a program and a graph document: the windows of test_program_attempt.py."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from tests.integration.driver.harness import Bench
from tests.integration.driver.test_program_attempt import START, STATE_PARTITIONS, WINDOWS, conf, job, the_end
from tests.integration.driver.test_program_growth import grown_by, of_type

KINDS = ("program", pytest.param("document", marks=pytest.mark.long))
EACH = pytest.mark.parametrize(
    "each", [False, pytest.param(True, marks=pytest.mark.long)], ids=["one", "each"]
)
"""Whether each refusal is seen, of which every one takes a driver, or one that Spark's state schemas are asked for."""
FIRST = f"{WINDOWS}{START}query.awaitTermination()"
OTHER_KEY = ("% 10)", "% 10).cast('string')")
OTHER_STATE = (START, f"\nwindows = windows.dropDuplicates(['window', 'key']){START}")
NO_STATE = (START, f"\nwindows = rows.selectExpr('timestamp AS window', 'value AS key', '1 AS count'){START}")
OTHER_SINK = ('.format("parquet").option("path", sys.argv[1])', '.format("noop")')
OTHER_KEY_SAID = (
    "the key of 'aggregate' has field 2, _groupingexpression, as string now, and had it as bigint."
)


def job_of(kind: str, rig: Bench, text: str, out: Path | None = None, **more: Any) -> dict[str, Any]:
    """What runs ``text`` and writes to ``out``. A document has from it what is done with the rows and the sink's name,
    and says how many state partitions it has if it begins."""
    out = out or rig.directory / "out"
    if kind == "program":
        return job(rig, text, (), args=[str(out)], **more)
    body = text.split(".load()\n)\n", 1)[1].split("\nquery = ", 1)[0]
    module = f"from pyspark.sql import functions as F\n\ndef windows(rows):\n{indent(body, ' ')}\n return windows\n"
    (rig.artifacts_dir / "windows.py").write_text(module, encoding="utf-8")
    source = {"rowsPerBatch": 200, "numPartitions": 8, "advanceMillisPerBatch": 1000}
    sink = {"format": "noop"} if '"noop"' in text else {"format": "parquet", "path": str(out)}
    (name,) = re.findall(r'queryName\("(\w+)"\)', text)
    aggregate = {"name": "aggregate", "inputs": ["rate-micro-batch"], "python": "windows:windows"}
    vertices = [
        {"name": "rate-micro-batch", "source": {"format": "rate-micro-batch", "options": source}},
        aggregate if "from" in more else {**aggregate, "maxParallelism": STATE_PARTITIONS},
        {"name": name, "inputs": ["aggregate"], "sink": sink},
    ]
    return {"name": "job", "type": "STREAMING", "artifacts": ["windows.py"], "vertices": vertices, **more}


def start(rig: Bench, document: dict[str, Any], parallelism: int = 1, **changes: Any) -> None:
    """``parallelism``: of the aggregate, which a program has not yet at its beginning."""
    defaults = conf() if "script" in document else {}
    rig.start(document, {"job": parallelism, "aggregate": parallelism}, **defaults, **changes)


def stopped(rig: Bench, kind: str, text: str) -> tuple[dict[str, Any], Path]:
    """The document of a job that has run ``text`` from its beginning and was drained, and its checkpoint."""
    document = job_of(kind, rig, text)
    start(rig, document, 4)
    rig.wait_batches(2)
    if kind == "program":
        (started,) = of_type(rig, "query-started")
        document = grown_by(document, started)
    return document, drained(rig)


def drained(rig: Bench) -> Path:
    rig.control_plane.order(stop="drain")
    checkpoint = Path(the_end(rig, "stopped")["location"])
    assert rig.drivers[-1].exit_status() == 0
    return checkpoint


def refused(rig: Bench, document: dict[str, Any], **changes: Any) -> str:
    """What an attempt of ``document`` ends with, which starts no query."""
    rig.control_plane.reports.clear()
    start(rig, document, **changes)
    failed = the_end(rig, "failed")
    assert rig.drivers[-1].exit_status() == 4 and not failed["recoverable"]
    assert "script" in document or failed["vertex"] == "windows"
    assert not rig.control_plane.of_type("query-started") and not rig.control_plane.batches
    rig.control_plane.reports.clear()
    return str(failed["error"])


def files(place: Path) -> dict[str, bytes]:
    """But for the note of the attempt that looked at them last."""
    found = (each for each in place.rglob("*") if each.is_file() and not each.name.startswith("owner."))
    return {str(each.relative_to(place)): each.read_bytes() for each in found}

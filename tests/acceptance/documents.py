"""Graph documents that read and write with Spark's connectors, in environments of their own."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests import environments
from tests.acceptance.connectors import PARTITIONS
from tests.acceptance.deployment import Deployment, wait_for
from tests.acceptance.programs import CONFIG, INPUT_S, Feeds, Outcome, kill_driver, rescale
from tests.kafka import KafkaBroker

SUBMISSION_S = 1300.0
STATE_PARTITIONS = 6
CODE, ONCE = "once.py", "def once(rows): return rows.dropDuplicates()\n"
BATCH = 2000
"""Records of a batch that reads Kafka."""


@dataclass(frozen=True)
class Document:
    """``version``: of the PySpark of its environment; empty for that of the server."""

    name: str
    vertices: Sequence[Mapping[str, Any]]
    version: str = ""
    packages: tuple[str, ...] = ()
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def content(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": "STREAMING",
            **({"environment": {"requirements": self.requirements}} if self.version else {}),
            **({"packages": list(self.packages)} if self.packages else {}),
            "artifacts": [CODE],
            "config": {**CONFIG, **self.config},
            "vertices": list(self.vertices),
        }

    @property
    def requirements(self) -> list[str]:
        return environments.requirements(self.version)

    def served(self) -> Document:
        """The document, once its environment is there; without it the test is skipped."""
        try:
            assert not self.version or environments.having(
                environments.requirements(self.version), self.packages
            )
        except environments.NotServed as missing:
            pytest.skip(f"NOT TESTED {self.name} with {self.version} {' '.join(self.packages)}: {missing}")
        return self


def submit(deployment: Deployment, document: Document) -> None:
    files = {"graph": ("graph.json", json.dumps(document.content)), "files": (CODE, ONCE)}
    answer = deployment.call("POST", "/jobs", files=files, timeout=SUBMISSION_S)
    assert answer.is_success, answer.text
    deployment.job_id = answer.json()["jobid"]


def checkpoint(deployment: Deployment) -> Path:
    """That of the only query of the job."""
    (sink,) = (one["id"] for one in deployment.job()["vertices"] if one["name"] == "kept")
    return deployment.data_dir / "jobs" / deployment.job_id / "checkpoint" / str(sink)


def run_rescaled(
    deployment: Deployment,
    document: Document,
    feeder: Feeds,
    reached: Callable[[], bool],
    *,
    rescales: int,
    seed: int,
) -> Outcome:
    """Submit it, rescale it at random, kill its driver half-way, and stop it when ``reached`` says that it is at
    the end of its input."""
    outcome, dice = Outcome(), random.Random(seed)
    submit(deployment, document)
    for number in range(rescales):
        rescale(deployment, dice, outcome)
        if number == rescales // 2:
            kill_driver(deployment, outcome)
    feeder.finish()

    def at_end() -> bool:
        state = deployment.job()["state"]
        assert state not in ("FAILED", "CANCELED"), deployment.why(state)
        return reached()

    wait_for("the job has done all of its input", at_end, INPUT_S)
    deployment.stop()
    return outcome


class Fed:
    """All of the input is there already."""

    def finish(self) -> None:
        return


# -- vertices


def kafka_source(broker: KafkaBroker, topic: str) -> dict[str, Any]:
    options = {
        "kafka.bootstrap.servers": broker.servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": BATCH,
    }
    return {
        "name": "records",
        "source": {"format": "kafka", "options": options},
        "parallelism": PARTITIONS,
    }


def file_source(form: str, folder: Path, schema: str | None = None, **options: Any) -> dict[str, Any]:
    source = {"format": form, "path": str(folder), "options": {"maxFilesPerTrigger": 10, **options}}
    return {
        "name": "records",
        "source": source | ({} if schema is None else {"schema": schema}),
        "parallelism": 2,
    }


def sql(name: str, text: str, source: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputs": [source], "sql": text, "parallelism": 2, **more}


def each_once(source: str) -> dict[str, Any]:
    """Rows that are equal, once."""
    python = {"python": "once:once", "stateful": True, "maxParallelism": STATE_PARTITIONS}
    return {"name": "once", "inputs": [source], "parallelism": 2, **python}


def kept(source: str, **sink: Any) -> dict[str, Any]:
    return {"name": "kept", "inputs": [source], "sink": sink, "parallelism": 2}

"""What Prometheus would read of a server, for tests."""

from __future__ import annotations

import dataclasses

import httpx
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families as parse

from app.model.measured import ExecutorLoad
from tests.contract.world import World, eventually

Told = dict[str, Metric]


async def scrape(http: httpx.AsyncClient) -> Told:
    answer = await http.get("/metrics")
    assert answer.status_code == 200, answer.text
    return {metric.name: metric for metric in parse(answer.text)}


def value(told: Told, sample: str, **labels: str) -> float | None:
    """The sum of the samples with these labels; None if there are none."""
    found = [
        each.value
        for metric in told.values()
        for each in metric.samples
        if each.name == sample and labels.items() <= each.labels.items()
    ]
    return sum(found) if found else None


async def loaded(world: World) -> str:
    """A running job of which everything is told."""
    job_id = await world.running()
    driver = world.driver()
    driver.vertex_load |= {
        name: 4 for name in ("records_in", "records_out", "bytes_in", "bytes_out", "busy_ms", "state_rows")
    } | {"state_bytes": 5, "backlog_rows": 6}
    executor = dict.fromkeys((each.name for each in dataclasses.fields(ExecutorLoad)), 8)
    driver.load |= {
        "watermark_ms": 1_000_000,
        "backlog_rows": 40,
        "state_rows": 7,
        "executor_loads": [executor | {"executor_id": "driver", "host": "here"}],
    }

    async def told() -> bool:
        found = await scrape(world.http)
        return bool(
            value(found, "slotwise_job_pending_records", job_id=job_id)
            and value(found, "slotwise_vertex_state_bytes")
            and value(found, "slotwise_job_heap_max_bytes")
        )

    await eventually(told, "the load")
    return job_id

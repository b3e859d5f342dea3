"""What a batch driver and its control plane say to each other survives JSON."""

from __future__ import annotations

import dataclasses
import json

from app.model.batch import RegionOrder, Result
from app.model.fromjson import from_json
from tests.unit.batch.driving import MB, BatchJob, chain


def test_orders_and_results_survive_json() -> None:
    job = BatchJob(chain(rule="even-data")).run().finish("customers").finish("orders", 30 * MB, *(MB,) * 15)
    order = job.orders["joined"]
    text = json.dumps(dataclasses.asdict(order))
    assert from_json(RegionOrder, json.loads(text)) == order
    result = order.reads[0].result
    assert from_json(Result, json.loads(json.dumps(dataclasses.asdict(result)))) == result

"""Traces and metrics of a real server with a real job: a collector and a scraper find what has happened."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from prometheus_client.parser import text_string_to_metric_families

from tests.acceptance.deployment import Deployment, counting_in_place, deployed, wait_for

pytestmark = pytest.mark.timeout(600)

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
STOPS_IN_S = 20.0


class Collector(ThreadingHTTPServer):
    """Takes traces over OTLP/HTTP."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        super().__init__(("127.0.0.1", 0), _Export)

    def in_trace(self, trace: str) -> dict[str, Span]:
        return {span.name: span for span in list(self.spans) if span.trace_id.hex() == trace}


class _Export(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert self.path == "/v1/traces" and isinstance(self.server, Collector)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for of_scope in of_resource.scope_spans:
                self.server.spans.extend(of_scope.spans)
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def attributes(span: Span) -> dict[str, str]:
    return {one.key: one.value.string_value for one in span.attributes}


def metrics(deployment: Deployment) -> dict[tuple[str, str, str], float]:
    """By name, cause and rung."""
    text = deployment.call("GET", "/metrics").text
    return {
        (sample.name, sample.labels.get("cause", ""), sample.labels.get("rung", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.long
def test_a_rescale_is_one_trace_and_a_failover_is_another(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    with deployed(tmp_path, settings={"traces": "true"}) as deployment:
        deployment.start(with_points=False)
        deployment.submit(counting_in_place(tmp_path, 1, 4))
        deployment.await_settled()
        bounds = {
            name: {"parallelism": {"lowerBound": 1, "upperBound": 2}}
            for name in ("numbers", "counts", "store")
        }
        path = f"/jobs/{deployment.job_id}/resource-requirements"
        answer = deployment.call("PUT", path, json=bounds, headers={"traceparent": TRACEPARENT})
        assert answer.is_success, answer.text
        deployment.await_settled()
        wait_for(
            "the rescale is traced", lambda: {"rescale", "first batch"} <= collector.in_trace(TRACE).keys()
        )
        trace = collector.in_trace(TRACE)
        expected = {
            "decision",
            "rescale",
            "Executing",
            "Rescaling",
            "order",
            "change in-place",
            "first batch",
        }
        assert set(trace) == {"PUT /jobs/{jobid}/resource-requirements", *expected}
        record = deployment.history()[0]
        rescale = trace["rescale"]
        assert attributes(rescale)["slotwise.rescale.uuid"] == record["rescaleUuid"]
        order, batch = trace["order"], trace["first batch"]
        times = (
            rescale.start_time_unix_nano, order.end_time_unix_nano, batch.start_time_unix_nano,
            rescale.end_time_unix_nano,
        )  # fmt: skip
        assert times == tuple(sorted(times))

        os.kill(deployment.job()["driverPid"], signal.SIGKILL)
        wait_for("the failover is over", lambda: deployment.history()[0]["number"] == 3)
        deployment.await_settled()
        uuid = deployment.history()[0]["rescaleUuid"]

        def failover() -> Span | None:
            spans = [span for span in list(collector.spans) if span.name == "rescale"]
            return next((span for span in spans if attributes(span)["slotwise.rescale.uuid"] == uuid), None)

        found = wait_for("the failover is traced", failover)
        assert not found.parent_span_id and found.trace_id.hex() != TRACE
        assert attributes(found)["slotwise.rescale.rung"] == "new-driver"

        told = metrics(deployment)
        assert told["slotwise_rescales_total", "UPDATE_REQUIREMENT", "in-place"] >= 0
        assert told["slotwise_rescale_output_gap_seconds_count", "", "in-place"] == 1
        assert told["slotwise_job_restarts_total", "", ""] >= 1
        assert told["slotwise_job_records_per_second", "", ""] > 0

        # A collector that is away keeps nobody from stopping.
        collector.shutdown()
        began_s = time.monotonic()
        assert deployment.terminate_server() == 0
        assert time.monotonic() - began_s < STOPS_IN_S

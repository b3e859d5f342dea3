"""Traces: one from a PUT to the first batch at the new parallelism, and nothing of it unless it is asked for."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cachetools import LRUCache
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from app.model.ids import derive_id
from app.model.plan import Rung
from app.model.protocol import Report
from app.model.requirements import Requirements
from app.model.rescale import RescaleRecord, TerminatedReason, TriggerCause
from app.plugins.traces import OpenTelemetry
from app.scheduler.adaptive.events import RequirementsUpdated
from app.store.writes import AddRequirements, PutRescale, UnitOfWork
from app.worker.job.mailbox import RequestDecision
from app.worker.views import RequirementsResult
from tests.contract.world import GRAPH, RESTART_AT_ONCE, World, bounds, eventually, open_world

PUT = "PUT /jobs/{jobid}/resource-requirements"
CLIENTS_TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CLIENTS_SPAN = "00f067aa0ba902b7"
TRACEPARENT = f"00-{CLIENTS_TRACE}-{CLIENTS_SPAN}-01"


@dataclass
class Traced:
    world: World
    exporter: InMemorySpanExporter
    traces: OpenTelemetry

    def spans(self, name: str | None = None) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if name in (None, span.name)]

    async def rescale(self, number: int) -> ReadableSpan:
        """The span of a record that has ended."""

        async def there() -> ReadableSpan | None:
            found = [span for span in self.spans("rescale") if of(span)["slotwise.rescale.number"] == number]
            assert len(found) <= 1
            return found[0] if found else None

        span: ReadableSpan = await eventually(there, f"the span of rescale {number}")
        return span

    def below(self, parent: ReadableSpan) -> dict[str, ReadableSpan]:
        return {
            span.name: span
            for span in self.spans()
            if span.parent is not None and span.parent.span_id == parent.context.span_id
        }


def of(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def trace_of(span: ReadableSpan) -> str:
    return f"{span.context.trace_id:032x}"


@pytest.fixture
async def traced(sqlite_url: str, tmp_path: Path) -> AsyncIterator[Traced]:
    exporter = InMemorySpanExporter()
    traces = OpenTelemetry(SimpleSpanProcessor(exporter))
    async with open_world(sqlite_url, tmp_path, plugins=[traces]) as world:
        yield Traced(world, exporter, traces)


def wider(upper: int) -> dict[str, object]:
    return bounds(flights=(1, upper), delays=(1, upper), store=(1, 1))


async def test_one_trace_leads_from_a_put_to_the_first_batch(traced: Traced) -> None:
    world = traced.world
    job_id = await world.running()
    answer = await world.put(job_id, wider(3), **{"traceparent": TRACEPARENT, "X-Slotwise-Reason": "more"})
    assert answer.status_code == 200
    span = await traced.rescale(2)
    (put,) = traced.spans(PUT)
    assert put.parent is not None
    assert (f"{put.parent.span_id:016x}", trace_of(put)) == (CLIENTS_SPAN, CLIENTS_TRACE)
    assert of(put)["slotwise.job.id"] == job_id and put.kind.name == "SERVER"
    below_put = traced.below(put)
    assert set(below_put) == {"decision", "rescale"}
    assert of(below_put["decision"])["slotwise.requirements.version"] == 2
    (record,) = await world.get(f"/jobs/{job_id}/rescales/history", limit=1)
    told = of(span)
    assert told["slotwise.rescale.uuid"] == record["rescaleUuid"]
    assert (
        told["slotwise.rescale.cause"] == "UPDATE_REQUIREMENT" and told["slotwise.rescale.rung"] == "in-place"
    )
    assert told["slotwise.requested_because"] == "more"
    assert told["slotwise.rescale.output_gap_ms"] == record["outputGapInMillis"]

    async def first_batch() -> bool:
        return "first batch" in traced.below(span)

    await eventually(first_batch, "the span of the first batch")
    steps = traced.below(span)
    assert {"Executing", "Rescaling", "order", "change in-place", "first batch"} == set(steps)
    assert {trace_of(each) for each in (put, *below_put.values(), *steps.values())} == {CLIENTS_TRACE}
    order, change, batch = (steps[name] for name in ("order", "change in-place", "first batch"))
    times = [
        span.start_time,
        order.start_time,
        order.end_time,
        change.end_time,
        span.end_time,
    ]
    assert times == sorted(times)
    assert change.end_time <= batch.start_time <= batch.end_time
    assert change.start_time == order.end_time


PLAN = 2
BEGAN_MS, BATCH_MS = 1_000_000_000_000, 4_000_000_000_000
"""Long before the driver is told of the plan, which is now, and long after."""


def batch_report(started_ms: int) -> Report:
    return Report(
        1, started_ms + 10, "batch", plan_version=PLAN, whole_plan=True, batch_id=7, started_ms=started_ms
    )


@pytest.mark.parametrize("is_reported_first", [True, False])
@pytest.mark.parametrize(("started_after_ms", "is_told"), [(-5, True), (5, False)])
def test_a_first_batch_belongs_to_the_rescale_if_it_began_before_its_end(
    is_reported_first: bool, started_after_ms: int, is_told: bool
) -> None:
    """The reports of a plan in force and of its batch may come in one request or in two; a plan that came into force
    while there was nothing to do has no batch."""
    exporter = InMemorySpanExporter()
    traces = OpenTelemetry(SimpleSpanProcessor(exporter))
    job: Any = SimpleNamespace(job_id="job")
    traces.ordered("job", PLAN)
    record = RescaleRecord(
        "uuid", 2, "requirements", 1, TriggerCause.UPDATE_REQUIREMENT, BEGAN_MS, (), (), (), BATCH_MS,
        TerminatedReason.SUCCEEDED, rung=Rung.IN_PLACE,
    )  # fmt: skip
    ends = UnitOfWork("job", 1, [PutRescale(record)])
    report = batch_report(BATCH_MS + started_after_ms)
    if is_reported_first:
        traces.batch_reported(job, 1, report, 1)
        traces.committed(ends, 0.0)
    else:
        traces.committed(ends, 0.0)
        traces.batch_reported(job, 1, report, 1)
        traces.batch_reported(job, 1, batch_report(BATCH_MS - 1), 1)
    found = [span.name for span in exporter.get_finished_spans()]
    both = ["change in-place", "first batch"] if is_told else []
    assert sorted(found) == sorted(["order", "rescale", *both])


async def test_what_was_not_asked_for_has_a_trace_of_its_own(traced: Traced) -> None:
    world = traced.world
    job_id = await world.running(GRAPH | {"config": RESTART_AT_ONCE})
    first = await traced.rescale(1)
    world.driver().fail("Nothing works.")
    await world.completed(job_id, 2)
    failover = await traced.rescale(2)
    assert first.parent is None and failover.parent is None
    assert trace_of(first) != trace_of(failover)
    assert of(failover)["slotwise.rescale.cause"] == "RECOVERABLE_FAILOVER"
    assert "Nothing works." in str(of(failover)["slotwise.rescale.message"])
    assert "Restarting" in traced.below(failover) or "WaitingForResources" in traced.below(failover)


async def test_refused_and_unchanged_requests_end_with_their_decision(traced: Traced) -> None:
    world = traced.world
    job_id = await world.running()
    crossed = bounds(flights=(5, 2), delays=(1, 2), store=(1, 1))
    assert (await world.put(job_id, crossed)).status_code == 400
    assert (await world.put(job_id, wider(3), **{"If-Match": '"9"'})).status_code == 412
    assert (await world.put(job_id, wider(2), traceparent="00-nonsense")).status_code == 200
    assert (await world.put(job_id, wider(2))).status_code == 200
    puts = traced.spans(PUT)
    decisions = [traced.below(put)["decision"] for put in puts]
    assert [put.status.status_code.name for put in puts] == ["ERROR", "ERROR", "UNSET", "UNSET"]
    assert "higher" in str(decisions[0].status.description) and "9" in str(decisions[1].status.description)
    assert "Traceback" not in str([put.status.description for put in puts])
    assert len({trace_of(put) for put in puts}) == 4


async def test_each_request_of_several_at_once_has_its_own_record(traced: Traced) -> None:
    world = traced.world
    job_id = await world.running()
    world.host.hold()
    answers = await asyncio.gather(*(world.put(job_id, wider(upper)) for upper in (3, 4, 5, 3)))
    assert {answer.status_code for answer in answers} == {200}
    world.host.release()
    last = await traced.rescale(5)
    puts = traced.spans(PUT)
    assert len(puts) == 4
    for put in puts:
        steps = traced.below(put)
        version = of(steps["decision"])["slotwise.requirements.version"]
        # The first record is that of the start, whose bounds are version 1.
        assert of(steps["rescale"])["slotwise.rescale.number"] == version
    assert of(last)["slotwise.rescale.outcome"] == "COMPLETED"


async def test_a_request_that_was_not_written_has_no_part_in_the_next_record(traced: Traced) -> None:
    world = traced.world
    job_id = await world.running(GRAPH | {"config": RESTART_AT_ONCE})
    put, decided = traced.traces, Requirements("other", 2, ())
    (record,) = await world.get(f"/jobs/{job_id}/rescales/history", limit=1)
    coming = derive_id(job_id, "rescale", record["number"] + 1)
    answer = RequirementsResult(2, True, rescale=coming)
    put.decision(job_id, lambda _: RequestDecision(RequirementsUpdated(decided), answer))(
        world.control_plane.job(job_id).state
    )
    world.driver().fail("Nothing works.")
    failover = await traced.rescale(2)
    assert of(failover)["slotwise.rescale.uuid"] == coming and failover.parent is None
    assert traced.spans("decision") == []


async def test_a_request_keeps_its_record_if_other_bounds_come_into_force_in_its_commit(
    traced: Traced,
) -> None:
    world = traced.world
    job_id = await world.running()
    traces, decided = traced.traces, Requirements("mine", 2, ())
    answer = RequirementsResult(2, True, rescale="uuid")
    traces.decision(job_id, lambda _: RequestDecision(RequirementsUpdated(decided), answer))(
        world.control_plane.job(job_id).state
    )
    record = RescaleRecord(
        "uuid", 2, "of the new version", 1, TriggerCause.UPDATE_REQUIREMENT, BEGAN_MS, (), (), ()
    )
    traces.committed(UnitOfWork(job_id, 1, [AddRequirements(decided, BEGAN_MS), PutRescale(record)]), 0.0)
    (decision,) = traced.spans("decision")
    assert of(decision)["slotwise.requirements.version"] == 2


async def test_a_defect_of_a_trace_changes_nothing(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object, **_options: object) -> None:
        raise AssertionError("a defect")

    for name in ("_span", "_rescaled", "_of"):
        monkeypatch.setattr(OpenTelemetry, name, broken)
    world = traced.world
    job_id = await world.running()
    assert (await world.put(job_id, wider(3))).status_code == 200
    assert (await world.put(job_id, wider(2), **{"If-Match": '"9"'})).status_code == 412
    await world.completed(job_id, 2)


async def test_only_so_many_jobs_are_remembered(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = traced.traces
    monkeypatch.setattr(kept, "_jobs", LRUCache(1))
    jobs = [await traced.world.running() for _ in range(2)]
    assert (await traced.world.put(jobs[0], wider(3))).status_code == 200
    assert len(kept._jobs) == 1


def modules_after(code: str) -> Sequence[str]:
    script = (
        f"import sys\n{code}\nprint(*[name for name in sys.modules if name.startswith('opentelemetry.sdk')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout.split()


def test_unless_it_is_asked_for_nothing_of_it_is_imported() -> None:
    begin = "from app.main import _plugins\nfrom app.settings import Settings\n"
    assert modules_after(begin + "_plugins(Settings(traces=False))") == []
    assert modules_after(begin + "[each.close() for each in _plugins(Settings(traces=True))]") != []


def test_without_its_packages_the_server_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from app.main import StartRefused, _plugins
    from app.settings import Settings

    monkeypatch.delitem(sys.modules, "app.plugins.traces")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(StartRefused, match=r"pip install 'slotwise\[otel\]'"):
        _plugins(Settings(traces=True))

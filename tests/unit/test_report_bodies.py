"""Reports of drivers as they are read from a body: of any size that the protocol allows, and nothing is lost."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from app.api import pieces
from app.api.errors import ApiError
from app.api.routers.drivers import REPORTS_PER_CALL, _reports
from app.driver.client import _body_of
from app.model.batch import Result
from app.model.jobgraph import MAX_PARALLELISM_LIMIT
from app.model.protocol import REPORT_LIMIT_CHARS, REPORTS_LIMIT_BYTES, Report


def finished(seq: int, results: int, parts: int = MAX_PARALLELISM_LIMIT) -> Report:
    """The end of a region that has left so many results of the most subpartitions."""
    sizes = tuple(range(10**8, 10**8 + parts))
    made = [Result(f"d{n}", 1, f"/results/{n}", "0" * 64, sizes, sizes) for n in range(results)]
    return Report(seq, 1, "region-finished", region=seq, run=1, results=tuple(made))


def body(*reports: Report, **others: Any) -> bytes:
    return json.dumps({"reports": [dataclasses.asdict(each) for each in reports], **others}).encode()


def report(**fields: Any) -> bytes:
    return json.dumps({"reports": [{"seq": 1, "at_ms": 1, "type": "batch", **fields}]}).encode()


def refusal(text: bytes) -> str:
    with pytest.raises(ApiError) as caught:
        _reports(text)
    assert caught.value.status == 400
    return str(caught.value)


@pytest.mark.parametrize("results", [1, 2, 5])
def test_the_end_of_a_region_with_many_subpartitions_is_read(results: int) -> None:
    sent = [finished(1, 0), finished(2, results), finished(3, 0), finished(4, 1), finished(5, 0)]
    assert _reports(body(*sent)) == sent


def test_reports_are_whole_wherever_the_decoder_has_to_stop() -> None:
    sent = [finished(seq, 1, parts=20_000 + seq) for seq in range(12)]
    assert _reports(body(*sent)) == sent
    small = [Report(seq, 1, "batch", error="x" * (seq % 2000)) for seq in range(REPORTS_PER_CALL + 5)]
    assert _reports(body(*small)) == small[:REPORTS_PER_CALL]


def test_a_report_that_is_too_long_is_said_to_be() -> None:
    long = Report(1, 1, "batch", error="x" * REPORT_LIMIT_CHARS)
    assert f"longer than {REPORT_LIMIT_CHARS} characters" in refusal(
        body(finished(0, 0), long, finished(2, 0))
    )


def test_fields_of_newer_drivers_are_passed_over() -> None:
    sent = [finished(1, 1), finished(2, 0)]
    after = body(*sent, sent_at={"ms": [1, 2]}, note="]}")
    assert _reports(after) == sent
    before = b' {"sent_at": {"ms": [1]}, "n": 12 ,' + after.lstrip()[1:] + b"\n"
    assert _reports(before) == sent
    assert _reports(b'{"reports": [], "n": 1}') == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"", "is not JSON"),
        (b"[]", "is not JSON"),
        (b"{}", "is not JSON"),
        (b'{"n": 1}', "should be {"),
        (b'{"reports": {}}', "should be an array"),
        (b'{"reports": [1]}', "A Report should be a JSON object."),
        (b'{"reports": [{"seq": 1, "type": "batch"}]}', "The field at_ms of a Report is missing."),
        (report(plan_version="2"), "The field plan_version of a Report should be a valid integer."),
        (report(recoverable=1), "The field recoverable of a Report should be a valid boolean."),
        (report(type="dance"), "The field type of a Report should be 'begun', 'analysed', "),
        (report(plan_version="two"), "The field plan_version of a Report should be a valid integer"),
        (report(vertices=[{"vertex_id": "v"}]), "The field vertices.0.parallelism of a Report is missing."),
        (
            report(results=[{"dataset": "d", "run": {}}]),
            "The field results.0.run of a Report should be a valid",
        ),
        (report(lost=7), "The field lost of a Report should be a valid array."),
        (b'{"reports": []', "is not JSON"),
        (b'{"reports": [,]}', "is not JSON"),
        (b'{"reports": []} 1', "is not JSON"),
        (b'{"reports": [], }', "is not JSON"),
        (b'{1: 2, "reports": []}', "is not JSON"),
        (b'{"reports": [], "n": \xff}', "is not JSON"),
        (b"{" + b'"n": 1, ' * 200 + b'"reports": []}', "more than 100 fields"),
        (body(finished(1, 0))[:-2] + b" x]}", "is not JSON"),
    ],
)
def test_what_is_no_list_of_reports_is_refused(text: bytes, sentence: str) -> None:
    assert sentence in refusal(text)


def test_a_number_at_the_edge_of_what_is_decoded_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b'{"number": 1234567, "reports": []}'
    for size in range(2, len(text)):
        monkeypatch.setattr(pieces, "_WINDOW_CHARS", size)
        assert _reports(text) == []


def test_a_driver_sends_no_more_at_once_than_is_taken() -> None:
    waiting = [finished(seq, 2) for seq in range(40)]
    taken = _body_of(waiting)["reports"]
    assert 0 < len(taken) < len(waiting)
    assert len(json.dumps({"reports": taken})) < REPORTS_LIMIT_BYTES
    assert len(_body_of([finished(0, 0)] * 2000)["reports"]) < REPORTS_PER_CALL

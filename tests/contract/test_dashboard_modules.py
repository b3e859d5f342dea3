"""What modules of the dashboard compute, called in a browser: the time axis, words, events in pieces, what is read."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import yaml
from playwright.async_api import Browser, Page

from tests.browser import page_of
from tests.contract.live import listening
from tests.contract.world import World

DASH = "\u2013"


# That of the browser.
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def page(shown: World, started: Browser) -> AsyncIterator[Page]:
    """A page of the dashboard, whose modules can be imported. It must complain of nothing."""
    async with listening(shown) as port, page_of(started) as (opened, complaints):
        await opened.goto(f"http://127.0.0.1:{port}/")
        yield opened
        assert complaints == []


RECORD: dict[str, Any] = {
    "number": 1, "triggerCause": "UPDATE_REQUIREMENT", "requestedBy": "ann", "reason": "peak", "rung": "in-place",
    "startTimestampInMillis": 100_000, "endTimestampInMillis": 102_000, "terminalState": "COMPLETED", "message": None,
    "outputGapInMillis": 30, "rollbackOf": None, "causeInWords": "bounds were declared",
    "parallelismInWords": "counts 2->4",
    "vertices": {"v": {
        "jobVertexName": "counts", "sufficientParallelism": 1, "desiredParallelism": 4, "preRescaleParallelism": 2,
        "postRescaleParallelism": 4,
    }},
}  # fmt: skip


WORDS = {
    "it.duration(850)": "850 ms",
    "it.duration(1600)": "1.6 s",
    "it.duration(75000)": "1 min 15 s",
    "it.duration(3600000)": "1 h",
    "it.duration(90061000)": "1 d 1 h",
    "it.duration(-1) + it.duration(null) + it.count(null)": 3 * DASH,
    "it.count(1234.4)": "1,234",
    "it.count(2500000)": "2.5M",
    "it.facts(given[0], 0).map(fact => fact.join(' ')).join('; ')": "Cause bounds were declared; By ann; Why peak; "
    "Parallelism counts 2→4; Rung in-place; Outcome completed; Took 2.0 s; Output gap 30 ms",
}


def later(number: int, **changes: Any) -> dict[str, Any]:
    record = {**copy.deepcopy(RECORD), "number": number, **changes}
    return record | {
        "startTimestampInMillis": number * 100_000,
        "endTimestampInMillis": number * 100_000 + 2_000,
    }


async def computed(page: Page, module: str, expression: str, *values: Any) -> Any:
    """What a module of the page computes, in the browser: `it` is the module, `given` the values."""
    code = f"async ([module, given]) => {{ const it = await import(module); return {expression}; }}"
    return await page.evaluate(code, [f"/ui/{module}.js", list(values)])


async def test_what_the_time_axis_is_computed_from(page: Page) -> None:
    steps = "it.steps(given[0], given[1], 'v', given[2], given[3])"
    now = {"lower": 1, "upper": 6, "actual": 4}
    told = {
        "type": "requirements",
        "timestampInMillis": 150_000,
        "bounds": {"v": {"lowerBound": 1, "upperBound": 6}},
    }
    columns = await computed(page, "series", steps, [RECORD], [told], 200_000, now)
    assert columns == {
        "times": [100, 102, 150, 200],
        "lower": [1, 1, 1, 1],
        "upper": [4, 4, 6, 6],
        "wanted": [4, 4, 4, 4],
        "actual": [2, 4, 4, 4],
    }
    # With a floor of 2, the record of a declaration has other bounds than its event.
    floored = later(2)
    floored["vertices"]["v"] |= {"sufficientParallelism": 2, "desiredParallelism": 6}
    same_moment = {**told, "timestampInMillis": floored["startTimestampInMillis"]}
    columns = await computed(
        page, "series", steps, [floored], [same_moment], 300_000, {"lower": 2, "upper": 6, "actual": 2}
    )
    assert (columns["times"], columns["lower"], columns["upper"]) == ([200, 202, 300], [2] * 3, [6] * 3)
    # Bounds that wait for their deadline do not count.
    waits = {**same_moment, "deadlineTimestampInMillis": 900_000}
    waits["bounds"] = {"v": {"lowerBound": 1, "upperBound": 3}}
    columns = await computed(
        page, "series", steps, [floored], [waits], 300_000, {"lower": 1, "upper": 3, "actual": 2}
    )
    assert (columns["lower"], columns["upper"]) == ([1] * 3, [3] * 3)
    # What has ended is in force until then.
    columns = await computed(page, "series", steps, [RECORD], [], 200_000, {**now, "actual": None})
    assert (columns["times"][-2:], columns["actual"][-2:]) == ([199.999, 200], [4, None])
    # What failed is not in force, and one that goes on has no end.
    failed = later(2, terminalState="FAILED")
    columns = await computed(
        page, "series", steps, [failed], [], 300_000, {"lower": 1, "upper": 4, "actual": 2}
    )
    assert (columns["wanted"], columns["actual"]) == ([4, 2, 2], [2, 2, 2])
    going = {**RECORD, "endTimestampInMillis": None, "terminalState": None}
    bars = "it.bars(given[0], {from: given[1], to: given[2]}).map(({outcome, left, width}) => [outcome, left, width])"
    assert await computed(page, "series", bars, [going], 0, 200_000) == [["OPEN", 50, 50]]
    assert await computed(page, "series", bars, [later(2), RECORD], 0, 400_000) == [
        ["COMPLETED", 25, 0.5],
        ["COMPLETED", 50, 0.5],
    ]
    assert await computed(page, "series", bars, [RECORD], 150_000, 200_000) == []
    # A point is a failure, and a decision not to act, of whatever name a newer server gives it.
    events = [
        {"id": number, "type": kind, "timestampInMillis": 100 * number}
        for number, kind in enumerate(
            ("status", "no-change", "failure", "rescale-step", "from-the-future"), 1
        )
    ]
    code = "it.points(given[0], {from: 0, to: 1000}).map(({event, left}) => [event.type, left])"
    found = await computed(page, "series", code, events)
    assert found == [["no-change", 20], ["failure", 30], ["from-the-future", 50]]
    # A decision is told again with its count: it is one point.
    again = {"type": "no-change", "reason": "cap", "firstTimestampInMillis": 100, "message": "Its cap is 2."}
    events = [
        again | {"id": number, "timestampInMillis": 100 * number, "count": 10**number}
        for number in range(1, 4)
    ]
    code = code.replace("event.type", "event.count")
    assert await computed(page, "series", code, events) == [[1000, 10]]


async def test_events_come_in_pieces_of_any_size_and_figures_are_told_in_words(page: Page) -> None:
    stream = 'id: 7\n\nevent: status\ndata: {"a":\ndata: 1}\nid: 8\r\n\r\n: nothing\n\nid: 9\nevent: x\ndata: y\n\n'
    code = """(() => { const parser = new it.EventParser(); const [text, size] = given; const found = [];
        for (let at = 0; at < text.length; at += size) found.push(...parser.feed(text.slice(at, at + size)));
        return found; })()"""
    expected = [
        {"id": "7", "type": "", "data": ""},
        {"id": "8", "type": "status", "data": '{"a":\n1}'},
        {"id": "9", "type": "x", "data": "y"},
    ]
    for size in (1, 2, 7, len(stream)):
        assert await computed(page, "sse", code, stream, size) == expected
    for expression, text in WORDS.items():
        assert await computed(page, "words", expression, RECORD) == text, expression


LONG_BATCH = {
    "vertexName": "store", "batchId": 17, "startTimestampInMillis": 100_000, "reportedTimestampInMillis": 225_000,
    "tasksDone": 40, "tasksKnown": 96, "numRecords": None,
    "waitingInWords": None, "waitingSinceTimestampInMillis": None, "interruptionTimestampInMillis": None,
}  # fmt: skip


async def test_what_is_shown_of_a_batch_that_runs(page: Page) -> None:
    def shown(now: int, **changes: Any) -> Any:
        return computed(page, "longbatches", "it.shownOf(given[0], given[1])", LONG_BATCH | changes, now)

    assert await shown(230_000) == {
        "title": "store, batch 17",
        "about": "for 2 min 10 s",
        "percent": 42,
        "tasks": "40 of 96 tasks done",
        "waits": "",
    }
    unknown = await shown(265_000, tasksDone=None, tasksKnown=None, numRecords=12_000)
    assert (unknown["about"], unknown["percent"]) == ("for 2 min 45 s, 12,000 rows", None)
    assert unknown["tasks"] == "no task is known, 40 s ago"
    waits = {"waitingInWords": "the rescale to 8"}
    assert (await shown(230_000, **waits))["waits"] == "The rescale to 8 has waited for its end."
    waits["waitingSinceTimestampInMillis"] = 220_000
    waited = "The rescale to 8 has waited for 10 s for its end"
    assert (await shown(230_000, **waits))["waits"] == f"{waited}."
    waits["interruptionTimestampInMillis"] = 250_000
    assert (await shown(230_000, **waits))["waits"] == f"{waited}, and may interrupt it in 20 s."
    assert "interrupt" not in (await shown(250_000, **waits))["waits"]


async def test_what_is_read_in_pieces_or_does_not_come(page: Page) -> None:
    # Rescales of a night: all that are new, and the one that was open, though they are more than a page.
    code = """(async () => {
        const record = (number, terminalState) => ({ number, terminalState });
        const all = Array.from({ length: 70 }, (_, place) => record(70 - place, "COMPLETED"));
        const asked = [];
        const read = async (query) => {
            asked.push(query);
            const { limit, after } = Object.fromEntries(new URLSearchParams(query));
            return all.filter(({ number }) => number < (after ?? 71)).slice(0, Number(limit));
        };
        const known = [record(12, "COMPLETED"), record(11, null), record(10, "COMPLETED")];
        const found = await it.readOn(known, read);
        return [asked.length, found.length, found[0].number, found.at(-1).number,
            found.every(({ terminalState }) => terminalState !== null)];
    })()"""
    assert await computed(page, "series", code) == [3, 61, 70, 10, True]
    # More TaskManagers than are asked, and one that goes.
    code = """(async () => {
        const fetched = globalThis.fetch;
        globalThis.fetch = async (path) => {
            const [, id] = path.split("/");
            if (id === "tm-0") return new Response("{}", { status: 404 });
            const one = (_, place) => ({ id: `tm-${place}`, slotsNumber: 2, freeSlots: 1 });
            const list = Array.from({ length: given[0] }, one);
            return Response.json(id ? { allocatedSlots: [{ jobId: "j" }] } : { taskmanagers: list });
        };
        const found = await it.readSlots();
        globalThis.fetch = fetched;
        return [found.managers.length, found.byJob];
    })()"""
    assert await computed(page, "slots", code, 3) == [2, {"j": 2}]
    assert await computed(page, "slots", code, 18) == [17, None]
    # A connection that is dead without a word.
    await page.route("**/dead", lambda _: None)
    code = "it.call('GET', 'dead', { limitMs: 200 }).catch((error) => error.sentences[0])"
    assert await computed(page, "api", f"await {code}") == "The server has not answered within 0.2 seconds."
    # What is written for a program, to be completed by hand.
    found = await computed(page, "submit", "it.documentOf('word count.py', ['a.zip'])")
    assert yaml.safe_load(found) == {
        "name": "word count",
        "script": "word count.py",
        "args": [],
        "artifacts": ["a.zip"],
    }

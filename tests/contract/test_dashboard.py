"""The dashboard in a browser, without Spark behind it: what it computes, and what a person can do."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from app.api.auth import Tokens
from tests.browser import PHONE, page_of
from tests.contract.live import listening
from tests.contract.test_load import batch_of
from tests.contract.test_rollback import taken_back
from tests.contract.world import GRAPH, World, bounds, open_world

TOKEN = "correct-horse-battery-staple"
PATIENCE_MS = 20_000
JOBS = 500
DASH = "\u2013"

expect.set_options(timeout=PATIENCE_MS)
# That of the browser.
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def world(shown: World) -> World:
    return shown


@pytest_asyncio.fixture(loop_scope="module")
async def opened(world: World, started: Browser) -> AsyncIterator[tuple[Page, str]]:
    """A page and the address of the world. It must complain of nothing."""
    async with listening(world) as port, page_of(started) as (page, complaints):
        yield page, f"http://127.0.0.1:{port}"
        assert complaints == []


async def test_another_client_s_change_is_not_overwritten_unseen(
    world: World, opened: tuple[Page, str]
) -> None:
    page, url = opened
    job_id = await world.running()
    await page.goto(f"{url}/#/jobs/{job_id}")
    await page.get_by_role("button", name="Change bounds").click()
    upper = page.get_by_label("delays: upper bound")
    await upper.fill("3")
    await expect(page.get_by_role("heading", name="What would happen")).to_be_visible()
    await expect(page.locator("tr", has=upper).locator(".then")).to_have_text("3")
    answer = await world.put(job_id, bounds(flights=(1, 2), delays=(1, 5), store=(1, 1)))
    assert answer.status_code == 200
    # Nor when its numbers could have been read in between: the page is looked at again.
    await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    keys: list[str] = []
    page.on("request", lambda sent: keys.append(sent.headers.get("idempotency-key", "")))
    await page.get_by_label("Reason").fill("über die Nacht")
    await page.get_by_role("button", name="Declare", exact=True).click()
    await expect(page.get_by_text("Somebody has made a change meanwhile")).to_be_visible()
    await expect(page.get_by_text(f"in force 1{DASH}5")).to_be_visible()
    await expect(upper).to_have_value("3")
    await page.get_by_role("button", name="Declare", exact=True).click()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    found = await world.get(f"/jobs/{job_id}/resource-requirements")
    delays = await world.vertex(job_id, "delays")
    assert found[delays]["parallelism"] == {"lowerBound": 1, "upperBound": 3}
    (newest, *_) = await world.get(f"/jobs/{job_id}/rescales/history")
    assert newest["reason"] == "über die Nacht"
    assert len({key for key in keys if key}) == 2, "two changes, each with a key of its own"


async def test_a_rescale_that_was_taken_back_can_be_tried_again(
    world: World, opened: tuple[Page, str]
) -> None:
    page, url = opened
    job_id = await taken_back(world)
    await page.goto(f"{url}/#/jobs/{job_id}")
    await expect(page.locator(".why")).to_contain_text("was taken back")
    await expect(page.locator(".mark.point.bad")).to_have_count(1)
    await page.get_by_role("button", name="Change bounds").click()
    await expect(page.locator(".preview")).to_contain_text("in-place")
    await page.get_by_role("button", name="Try again").click()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await expect(page.locator(".mark.bar")).to_have_count(4)
    assert (await world.http.get(f"/jobs/{job_id}/resource-requirements")).headers["etag"] == '"3"'


async def test_a_floor_and_a_ceiling_are_set_with_a_preview(world: World, opened: tuple[Page, str]) -> None:
    page, url = opened
    job_id = await world.running()
    await page.goto(f"{url}/#/jobs/{job_id}")
    await page.get_by_role("button", name="Floor and ceiling").click()
    ceiling, everywhere = page.get_by_label("delays: ceiling"), page.get_by_label("all vertices: floor")
    await ceiling.fill("1")
    await expect(page.locator("tr", has=ceiling).locator(".then")).to_have_text("1")
    await expect(page.get_by_text(f"in force none{DASH}none")).to_be_visible()
    await everywhere.fill("many")
    await expect(page.get_by_role("heading", name="This would be refused")).to_be_visible()
    await everywhere.fill("")
    await expect(page.get_by_role("heading", name="What would happen")).to_be_visible()
    assert (await world.get(f"/jobs/{job_id}/scaling-policy"))["vertices"] == {}, "a preview sets nothing"
    await page.get_by_label("Reason").fill("the database")
    await page.get_by_role("button", name="Declare", exact=True).click()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    delays = await world.vertex(job_id, "delays")
    policy = await world.get(f"/jobs/{job_id}/scaling-policy")
    assert policy == {
        "allVertices": {"floor": None, "ceiling": None},
        "vertices": {delays: {"floor": None, "ceiling": 1}},
    }
    (version,) = await world.get(f"/jobs/{job_id}/scaling-policy/history")
    assert version["reason"] == "the database"
    await expect(page.locator(".why")).to_contain_text("the ceiling 1 of the scaling policy")
    # What is removed is gone.
    await page.get_by_role("button", name="Floor and ceiling").click()
    await expect(ceiling).to_have_value("1")
    await ceiling.fill(" ")
    await page.get_by_role("button", name="Declare", exact=True).click()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    assert (await world.get(f"/jobs/{job_id}/scaling-policy"))["vertices"] == {}


async def test_bounds_wait_for_a_deadline_and_the_rescale_is_canceled(
    world: World, opened: tuple[Page, str]
) -> None:
    page, url = opened
    job_id = await world.running()
    await page.goto(f"{url}/#/jobs/{job_id}")
    await page.get_by_role("button", name="Change bounds").click()
    await page.get_by_label("flights: upper bound").fill("12")
    preview, choice = page.locator(".preview"), page.get_by_label("then")
    await expect(choice).to_be_disabled()
    await page.get_by_label("Wait for all slots for").fill("soon")
    await expect(preview).to_contain_text("should be a duration such as")
    await page.get_by_label("Wait for all slots for").fill("1 h")
    await expect(preview).to_contain_text("at the deadline they would be dropped")
    await choice.select_option("COMMIT")
    await expect(preview).not_to_contain_text("at the deadline they would be dropped")
    await page.get_by_role("button", name="Declare", exact=True).click()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    (queued,) = (await world.get(f"/jobs/{job_id}/explanation"))["queued"]
    assert (queued["onTimeout"], queued["rescale"]) == ("COMMIT", 2)
    await page.get_by_role("button", name="Cancel the rescale").click()
    async with page.expect_request(lambda request: request.method == "DELETE") as sent:
        await page.get_by_role("button", name="Cancel rescale 2").click()
    assert await (await sent.value).header_value("idempotency-key")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await expect(page.get_by_role("button", name="Cancel the rescale")).to_have_count(0)
    flights = await world.vertex(job_id, "flights")
    declared = await world.get(f"/jobs/{job_id}/resource-requirements")
    assert declared[flights]["parallelism"] == {"lowerBound": 1, "upperBound": 2}


async def test_bounds_that_wait_can_be_canceled_although_their_record_has_ended(
    world: World, opened: tuple[Page, str]
) -> None:
    page, url = opened
    job_id = await world.running()
    told = await world.get(f"/jobs/{job_id}/explanation")
    await page.goto(f"{url}/#/jobs/{job_id}")
    await expect(page.locator("table.rescales tbody tr")).to_have_count(1)
    await expect(page.get_by_role("button", name="Cancel the rescale")).to_have_count(0)
    told["cancelableRescales"] = [1]
    await page.route("**/explanation", lambda route: route.fulfill(json=told))
    await page.reload()
    await expect(page.get_by_role("button", name="Cancel the rescale")).to_have_count(1)


async def test_a_token_is_asked_for_and_kept_in_the_tab_alone(
    sqlite_url: str, tmp_path: Path, started: Browser
) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"alice:{TOKEN}\n")
    path.chmod(0o600)
    async with (
        open_world(sqlite_url, tmp_path, tokens=Tokens.read(path)) as guarded,
        listening(guarded) as port,
        page_of(started) as (page, _),
    ):
        guarded.http.headers["Authorization"] = f"Bearer {TOKEN}"
        job_id = await guarded.running()
        await page.goto(f"http://127.0.0.1:{port}/")
        for token, seen in (("wrong-token-of-length", "does not know"), (TOKEN, "flight-delays")):
            await page.locator("input[type=password]").fill("schlüssel")
            await expect(page.get_by_text("only characters of ASCII")).to_be_visible()
            await page.locator("input[type=password]").fill(token)
            await page.get_by_role("button", name="Go on").click()
            await expect(page.get_by_text(seen).first).to_be_visible()
        # The stream of events has the token too.
        await expect(page.get_by_text("live", exact=True)).to_be_visible()
        await page.get_by_role("link", name="flight-delays").last.click()
        await expect(page.locator(".mark.bar")).to_have_count(1)
        await expect(page.get_by_text("by alice")).to_be_visible()
        assert TOKEN not in page.url
        stored = await page.evaluate("[JSON.stringify(localStorage), document.cookie]")
        assert not any(TOKEN in text for text in stored)
        async with page_of(started) as (other, _):
            await other.goto(f"http://127.0.0.1:{port}/#/jobs/{job_id}")
            await expect(other.get_by_role("heading", name="asks for a token")).to_be_visible()
        # What was typed stays when a token is asked for again.
        await page.get_by_role("link", name="Slotwise").click()
        await page.get_by_role("button", name="Submit a job").click()
        await page.get_by_label("Document", exact=True).fill("name: typed")
        await page.evaluate("sessionStorage.clear()")
        await page.locator("input[type=password]").fill(TOKEN)
        await page.get_by_role("button", name="Go on").click()
        await expect(page.get_by_role("heading", name="asks for a token")).to_have_count(0)
        await expect(page.get_by_label("Document", exact=True)).to_have_value("name: typed")
        await page.keyboard.press("Escape")
        await page.get_by_role("button", name="Forget the token").click()
        await expect(page.get_by_role("heading", name="asks for a token")).to_be_visible()


async def test_many_jobs_can_be_searched_and_ordered_and_what_changes_is_seen(
    world: World, opened: tuple[Page, str]
) -> None:
    page, url = opened
    for number in range(JOBS):
        waiting = copy.deepcopy(GRAPH) | {"name": f"job-{number:03}"}
        waiting["config"] = {"jobmanager.adaptive-scheduler.submission.resource-wait-timeout": "-1"}
        waiting["vertices"][0] |= {"parallelism": 99, "lowerBound": 99}
        await world.submit(waiting)
    await page.goto(url)
    rows = page.locator("table.jobs tbody tr")
    await expect(rows).to_have_count(200)
    await page.get_by_role("button", name=f"Show all {JOBS}").click()
    await expect(rows).to_have_count(JOBS)
    await page.get_by_role("button", name="Name").click()
    await expect(rows.first).to_contain_text("job-000")
    await page.get_by_label("Name or id").fill("JOB-49")
    await expect(rows).to_have_count(10)
    link = page.get_by_role("link", name="job-491")
    job_id = str(await link.get_attribute("href")).rpartition("/")[2]
    await world.http.patch(f"/jobs/{job_id}", params={"mode": "cancel"})
    await expect(page.locator("tr", has=link)).to_contain_text("CANCELED")
    await page.get_by_role("button", name="canceled 1").click()
    await expect(rows).to_have_count(1)


async def test_names_are_text_and_the_page_fits_a_phone_by_the_keyboard_alone(
    world: World, started: Browser
) -> None:
    hostile = "<img src=x onerror=alert(1)>" + "x" * 60
    job_id = await world.running(copy.deepcopy(GRAPH) | {"name": hostile})
    await world.put(
        job_id, bounds(flights=(1, 3), delays=(1, 3), store=(1, 1)), **{"X-Slotwise-Reason": "<b>why</b>"}
    )
    await world.completed(job_id, 2)
    async with (
        listening(world) as port,
        page_of(started, viewport=PHONE, color_scheme="dark", has_touch=True) as (page, complaints),
    ):
        # What the page shows is by the clock of the server.
        await page.add_init_script("const now = Date.now; Date.now = () => now() + 3600e3")
        for place in ("", f"#/jobs/{job_id}"):
            await page.goto(f"http://127.0.0.1:{port}/{place}")
            await expect(page.get_by_text(hostile, exact=False).first).to_be_visible()
            wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert await page.evaluate(wide) <= 0, place
        assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 19, 23)"
        assert await page.locator("img[onerror]").count() == 0
        # By the keyboard: along the rescales, and what they say.
        await page.locator(".mark.bar").last.focus()
        await expect(page.get_by_role("tooltip")).to_contain_text("<b>why</b>")
        await page.keyboard.press("ArrowLeft")
        await expect(page.get_by_role("tooltip")).to_contain_text("first start")
        await page.get_by_role("tab", name="Rescales").focus()
        await page.keyboard.press("ArrowRight")
        await expect(page.get_by_role("tab", name="Events")).to_be_focused()
        await expect(page.get_by_role("tabpanel")).to_contain_text("INITIALIZING")
        assert complaints == []


async def test_a_batch_that_takes_long_is_seen_until_it_ends(world: World, opened: tuple[Page, str]) -> None:
    page, url = opened
    job_id = await world.running()
    world.host.hold()
    batch = batch_of(await world.vertex(job_id, "store"), batch_id=10_000, tasks_done=24)
    await world.driver().tell(type="executors", long_batches=[batch])
    await page.goto(f"{url}/#/jobs/{job_id}")
    running = page.get_by_label("Running batches")
    await expect(running).to_contain_text("store, batch 10000")
    await expect(running).to_contain_text("for 1 min 1")
    await expect(running).to_contain_text("24 of 96 tasks")
    await expect(running.get_by_role("progressbar")).to_have_js_property("position", 0.25)
    await world.put(job_id, bounds(flights=(1, 2), delays=(1, 4), store=(1, 1)))
    await expect(running).to_contain_text("The rescale to 4 has waited for its end.")
    world.driver().batch_id = 9_999
    world.host.release()
    await expect(running).to_have_count(0)


async def test_a_server_that_goes_away_is_said_and_comes_back(world: World, opened: tuple[Page, str]) -> None:
    page, url = opened
    job_id = await world.running()
    await page.goto(f"{url}/#/jobs/{job_id}")
    live = page.get_by_text("live", exact=True)
    await expect(live).to_be_visible()
    await page.context.set_offline(True)
    await expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    # What was known stays.
    await expect(page.get_by_role("heading", name="flight-delays")).to_be_visible()
    await world.put(job_id, bounds(flights=(1, 3), delays=(1, 3), store=(1, 1)))
    await page.context.set_offline(False)
    await expect(page.get_by_role("alert")).to_have_count(0)
    await expect(page.locator(".mark.bar")).to_have_count(2)
    await expect(live).to_be_visible()
    # One that is forgotten while it is shown.
    await world.http.patch(f"/jobs/{job_id}", params={"mode": "cancel"})
    await world.status(job_id, "CANCELED")
    await world.http.delete(f"/jobs/{job_id}")
    await expect(page.get_by_role("alert")).to_contain_text(job_id)
    await expect(page.get_by_role("heading", name="flight-delays")).to_have_count(0)


async def test_a_document_is_checked_and_submitted_with_its_files(
    world: World, opened: tuple[Page, str], tmp_path: Path
) -> None:
    page, url = opened
    module = tmp_path / "delays.py"
    module.write_text("")
    document = tmp_path / "job.json"
    document.write_text(json.dumps(GRAPH | {"artifacts": ["delays.py"], "vertices": GRAPH["vertices"][:1]}))
    await page.goto(url)
    await page.get_by_role("button", name="Submit a job").click()
    await page.get_by_label("program (.py)").set_input_files([document, module])
    text = page.get_by_label("Document", exact=True)
    await expect(text).to_have_value(document.read_text())
    await page.get_by_role("button", name="Check").click()
    await expect(page.get_by_role("alert")).to_contain_text("sink")
    await text.fill(json.dumps(GRAPH | {"artifacts": ["delays.py"]}))
    await page.get_by_role("button", name="Check").click()
    await expect(page.get_by_role("heading", name="flight-delays would be accepted")).to_be_visible()
    assert await world.get("/jobs") == {"jobs": []}
    await page.get_by_role("button", name="Submit", exact=True).click()
    await expect(page.locator("h1")).to_contain_text("RUNNING")
    (job,) = (await world.get("/jobs"))["jobs"]
    assert page.url.endswith(job["id"])
    assert (await world.get(f"/jobs/{job['id']}/graph"))["artifacts"] == ["delays.py"]

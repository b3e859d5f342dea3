"""What a person does with the dashboard, in a real browser, on a real server with a real job."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.acceptance.deployment import Deployment
from tests.browser import ARGUMENTS

PROGRAM = """\
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.format("rate").option("rowsPerSecond", 40).load()


def tell(batch, number):
    batch.write.format("noop").mode("append").save()
    print("batch", number, "is done", flush=True)


counts = rows.groupBy((rows.value % 7).alias("key")).count()
query = counts.writeStream.outputMode("update").trigger(processingTime="500 milliseconds").foreachBatch(tell).start()
query.awaitTermination()
"""
PATIENCE_MS = 120_000

# One job is shared: each test goes on where the one before has left it.
pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True)
class Opened:
    page: Page
    deployment: Deployment
    complaints: list[str]


@pytest.fixture(scope="module")
def opened(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """A program that was submitted by the page, and the page of its job."""
    directory: Path = tmp_path_factory.mktemp("dashboard")
    script = directory / "counts.py"
    script.write_text(PROGRAM)
    deployment = Deployment(directory, slots=3)
    complaints: list[str] = []
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.on("pageerror", lambda error: complaints.append(str(error)))
        try:
            deployment.start(with_points=False)
            page.goto((deployment.data_dir / "address").read_text().strip())
            page.get_by_role("button", name="Submit a job").click()
            page.get_by_label("program (.py)").set_input_files(script)
            expect(page.get_by_label("Document", exact=True)).to_have_value(re.compile('script: "counts.py"'))
            page.get_by_role("button", name="Submit", exact=True).click()
            # The page of the job, or why there is none.
            expect(page.locator("h1 .status, dialog .problem").first).to_be_visible()
            expect(page).to_have_url(re.compile("#/jobs/[0-9a-f]{32}$"), timeout=1_000)
            deployment.job_id = page.url.rpartition("/")[2]
            yield Opened(page, deployment, complaints)
        finally:
            browser.close()
            deployment.close()


def test_the_program_that_was_submitted_runs(opened: Opened) -> None:
    page = opened.page
    expect(page.locator("h1")).to_contain_text("RUNNING")
    expect(page.locator(".node")).to_have_count(3)
    expect(page.locator(".why li").first).to_contain_text("The bounds want")
    expect(page.locator(".mark.bar.ok")).to_have_count(1)
    # Read from Spark, and drawn: so many rows per second.
    expect(page.locator(".key.rate")).to_have_text(re.compile(r"[1-9]\d* rows/s"))
    expect(page.locator(".node").first).to_contain_text("busy")


def test_bounds_are_changed_with_a_preview_and_the_rescale_is_seen(opened: Opened) -> None:
    page = opened.page
    page.get_by_role("button", name="Change bounds").click()
    upper = page.get_by_label("aggregate: upper bound")
    upper.fill("2")
    row = page.locator("tr", has=upper)
    expect(row.locator(".then")).to_have_text("2")
    expect(page.locator(".preview")).to_contain_text("in-place")
    page.get_by_label("Reason").fill("less at night")
    page.get_by_role("button", name="Declare", exact=True).click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.locator(".mark.bar")).to_have_count(2)
    expect(page.get_by_role("button", name=re.compile("^aggregate: runs 2 of 1.2"))).to_be_visible()
    expect(page.locator(".mark.bar.ok")).to_have_count(2)
    page.locator(".mark.bar").last.hover()
    # At once: what comes above it, such as a batch that takes long, moves it away from the pointer.
    told = ("bounds were declared", "anonymous", "less at night", "aggregate 3→2", "in-place", "Output gap")
    expect(page.get_by_role("tooltip")).to_contain_text(
        re.compile(".*".join(map(re.escape, told)), re.DOTALL)
    )
    assert opened.deployment.parallelism()["aggregate"] == 2


def test_what_would_be_refused_is_said_before_and_changes_nothing(opened: Opened) -> None:
    page = opened.page
    page.get_by_role("button", name="Change bounds").click()
    page.get_by_label("aggregate: lower bound").fill("5")
    preview = page.locator(".preview")
    expect(preview).to_contain_text("This would be refused")
    expect(preview).to_contain_text("higher than its upper bound 2")
    page.get_by_role("button", name="Declare", exact=True).click()
    expect(page.get_by_role("dialog").get_by_role("alert").last).to_contain_text(
        "higher than its upper bound 2"
    )
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert opened.deployment.requirements()[1]["aggregate"] == (1, 2)


def test_the_log_is_followed(opened: Opened) -> None:
    page = opened.page
    page.get_by_role("tab", name="Log").click()
    log = page.get_by_label("Log", exact=True).last
    told = re.compile(r"batch (\d+) is done")
    expect(log).to_contain_text(told)
    newest = max(int(number) for number in told.findall(log.inner_text()))
    expect(log).to_contain_text(f"batch {newest + 2} is done")
    at_end = "element => element.scrollTop + element.clientHeight >= element.scrollHeight - 8"
    assert log.evaluate(at_end)


def test_the_job_is_cancelled_and_its_history_stays(opened: Opened) -> None:
    page = opened.page
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.locator("h1")).to_contain_text("CANCELED")
    expect(page.get_by_role("button", name="Forget")).to_be_visible()
    expect(page.locator(".mark.bar")).to_have_count(2)
    page.get_by_role("link", name="Slotwise").click()
    expect(page.locator("table.jobs tbody tr")).to_contain_text("CANCELED")
    assert opened.complaints == []

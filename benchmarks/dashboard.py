"""How soon does the dashboard show the jobs, and how soon a change? A real server and Chromium, no drivers, no Spark.

    python benchmarks/dashboard.py [--jobs 1 500] [--rounds 20] [--json FILE]

First paint and first row are those of a browser that has nothing cached. A change is measured from the moment at which
its request is sent until the page shows it, by frames of the browser. Browser and server share the machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._waiting_jobs import GRAPH, Program, program, put
from tests.browser import ARGUMENTS

_ROW = "document.querySelector('table.jobs tbody tr')"
_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
_FIGURES = {
    "paint_ms": "first paint of the list",
    "rows_ms": "first row of the list",
    "job_paint_ms": "first plot of a job",
    "listed_ms": "a submitted job is in the list",
    "canceled_ms": "a cancelled job is shown so in the list",
    "bounds_ms": "changed bounds are on the page of the job",
}


def _shown(page: Page, condition: str) -> float:
    """When the page fulfils it, in seconds of the clock that it has in common with this process."""
    found = page.wait_for_function(f"() => {condition} && Date.now()")
    return float(found.json_value()) / 1000


def _opened(browser: Browser, url: str, condition: str) -> tuple[float, float]:
    """Milliseconds until the first paint, and until the page fulfils ``condition``."""
    page = browser.new_context().new_page()
    page.goto(url)
    done = page.wait_for_function(f"() => {condition} && performance.now()").json_value()
    paint = page.evaluate(_PAINT)
    page.context.close()
    return paint, done


def measure(running: Program, browser: Browser, rounds: int) -> dict[str, list[float]]:
    figures: dict[str, list[float]] = {name: [] for name in _FIGURES}
    http, url = running.server.http, running.server.url
    job_id = running.job_ids()[0]
    for _ in range(rounds):
        paint, rows = _opened(browser, url, _ROW)
        figures["paint_ms"].append(paint)
        figures["rows_ms"].append(rows)
        figures["job_paint_ms"].append(
            _opened(browser, f"{url}/#/jobs/{job_id}", "document.querySelector('canvas')")[1]
        )

    def timed(name: str, page: Page, method: str, path: str, body: Any, condition: str) -> Any:
        sent_s = time.time()
        answer = http.request(method, path, json=body)
        answer.raise_for_status()
        told = answer.json()
        shown_s = _shown(page, condition.format(told.get("jobid", "")))
        figures[name].append(max(0.0, shown_s - sent_s) * 1000)
        return told

    page = browser.new_context().new_page()
    page.goto(url)
    _shown(page, f"{_ROW} && document.querySelector('.connection.live')")
    for _ in range(rounds):
        link = "document.querySelector('table.jobs a[href=\"#/jobs/{}\"]')"
        new = timed("listed_ms", page, "POST", "/jobs", GRAPH, link)["jobid"]
        row = f"{link.format(new)}.closest('tr').textContent.includes('CANCELED')"
        timed("canceled_ms", page, "PATCH", f"/jobs/{new}?mode=cancel", None, row)
        http.delete(f"/jobs/{new}").raise_for_status()
    page.goto(f"{url}/#/jobs/{job_id}")
    _shown(page, "document.querySelector('.node') && document.querySelector('.connection.live')")
    for upper in range(20, 20 + rounds):
        method, path, body = put(job_id, upper).split(" ", 2)
        node = f"document.querySelector('.node').textContent.includes('{upper}')"
        timed("bounds_ms", page, method, path, json.loads(body), node)
    page.context.close()
    return figures


def _row(name: str, values: Sequence[float]) -> list[str]:
    return [_FIGURES[name], f"{statistics.median(values):.0f}", f"{max(values):.0f}"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 500])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        parser.error("There is no chromium on the PATH.")
    found = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        for jobs in arguments.jobs:
            with program() as running:
                running.submit(jobs, clients=min(jobs, 8))
                found[jobs] = measure(running, browser, arguments.rounds)
            table = Table("ms", "median", "most", title=f"{jobs} jobs, {arguments.rounds} rounds")
            for name, values in found[jobs].items():
                table.add_row(*_row(name, values))
            Console().print(table)
        browser.close()
    if arguments.json:
        arguments.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()

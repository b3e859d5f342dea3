"""A headless Chromium, the one of the machine, for tests and benchmarks of the dashboard."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright

# Root may not use its sandbox; a container has little of /dev/shm.
ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
PHONE = {"width": 390, "height": 844}


@contextlib.asynccontextmanager
async def browser(executable: str) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        try:
            yield started
        finally:
            await started.close()


def _is_complaint(told: ConsoleMessage) -> bool:
    # Of a refusal the browser says only that there was one.
    return told.type == "error" and not told.text.startswith("Failed to load resource")


@contextlib.asynccontextmanager
async def page_of(started: Browser, **options: Any) -> AsyncIterator[tuple[Page, list[str]]]:
    """A page of a new profile, and what its console complains of: errors, and what its policy has refused."""
    context = await started.new_context(**options)
    page = await context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda told: complaints.append(told.text) if _is_complaint(told) else None)
    try:
        yield page, complaints
    finally:
        await context.close()

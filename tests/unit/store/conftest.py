"""An open store on an empty database, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest_asyncio

from app.store.store import Store

Opener = Callable[..., Awaitable[Store]]


@pytest_asyncio.fixture
async def open_store(database_url: str) -> AsyncIterator[Opener]:
    """Opens stores on the test's database (``owner``, and options of `Store.open`), and closes them in the end."""
    opened: list[Store] = []

    async def opener(owner: str = "owner-1", **options: object) -> Store:
        store = await Store.open(database_url, owner, **options)  # type: ignore[arg-type]
        opened.append(store)
        return store

    yield opener
    for store in opened:
        await store.close()


@pytest_asyncio.fixture
async def store(open_store: Opener) -> Store:
    return await open_store()

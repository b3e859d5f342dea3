"""Fixtures that tests of every cost share: databases, a broker, the class data archive."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from app.store import schema
from tests.databases import PostgresMissing, PostgresServer
from tests.environments import archive_builder
from tests.kafka import KafkaBroker, KafkaMissing

# No example fails for its time: the machine may be busy.
settings.register_profile("slotwise", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("slotwise")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server of this test run. Skips where none is installed, but not in CI."""
    try:
        server = PostgresServer.start()
    except PostgresMissing as missing:
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail(f"{missing}; in CI the tests on PostgreSQL must run", pytrace=False)
        pytest.skip(f"NOT TESTED ON POSTGRESQL: {missing}")
    yield server
    server.stop()


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium. Skips where none is installed, but not in CI."""
    path = shutil.which("chromium")
    if path is None:
        missing = "no chromium is on the PATH"
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail(f"{missing}; in CI the dashboard must be tested in it", pytrace=False)
        pytest.skip(f"NOT TESTED IN A BROWSER: {missing}")
    return path


@pytest.fixture(scope="session")
def class_data_archive() -> Path:
    """The archive that servers build once per installation, where those of tests look for it: drivers start seconds
    faster from it."""
    builder = archive_builder()
    assert asyncio.run(builder.ensure()), builder.path.with_suffix(".log").read_text(encoding="utf-8")
    return builder.path


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of a SQLite database that does not exist yet."""
    return f"sqlite:///{tmp_path}/slotwise.db"


@pytest.fixture
def postgresql_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty PostgreSQL database."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def new_database_url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database: each test that asks for it runs on SQLite and on PostgreSQL."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of the present schema. Copying it is far quicker than migrating a new one."""
    path = tmp_path_factory.mktemp("template") / "slotwise.db"
    schema.upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def postgresql_template(postgres_server: PostgresServer) -> str:
    url = postgres_server.create_database()
    schema.upgrade(url)
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database without jobs: each test that asks for it runs on SQLite and on PostgreSQL."""
    template = request.getfixturevalue(f"{request.param}_template")
    if request.param == "sqlite":
        shutil.copy(template, tmp_path / "slotwise.db")
        yield f"sqlite:///{tmp_path}/slotwise.db"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    url = server.create_database(template)
    yield url
    server.drop_database(url)


@pytest.fixture
def new_sqlite_url(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], str]:
    """Makes URLs of SQLite databases that do not exist yet, for tests that need several."""
    return lambda: f"sqlite:///{tmp_path_factory.mktemp('database')}/slotwise.db"


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    """A Kafka of this module. Skips where its jars cannot be had."""
    try:
        started = KafkaBroker.start()
    except KafkaMissing as missing:
        pytest.skip(f"NOT TESTED WITH KAFKA: {missing}")
    yield started
    started.stop()

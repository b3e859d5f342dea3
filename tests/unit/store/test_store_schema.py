"""The schema: what it refuses, and how it comes to be."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from sqlalchemy import CheckConstraint, Engine, inspect, text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from app.plugins.livy.numbers import livy_batches
from app.store import schema
from app.store.__main__ import main as run_alembic
from app.store.engine import create, parse_url
from app.store.errors import SchemaError, StoreError, StoreUnavailable
from app.store.store import Store
from app.store.tables import metadata
from tests.databases import PostgresServer


@pytest.fixture
def engine(new_database_url: str) -> Iterator[Engine]:
    """Connections to a database with the schema."""
    schema.upgrade(new_database_url)
    engine = create(parse_url(new_database_url), write=True, pool_size=1)
    yield engine
    engine.dispose()


ROWS = {
    "jobs": "INSERT INTO jobs VALUES ('j', 'name', 'STREAMING', '{}', '{}', 1, NULL)",
    "job_states": "INSERT INTO job_states VALUES ('j', 1, 't', 'RUNNING', NULL, '{}')",
    "leases": "INSERT INTO leases VALUES ('j', 'me', 1, 1)",
    "requirements": "INSERT INTO requirements VALUES ('j', 1, 'u', '[]', NULL, NULL, NULL, 1)",
    "scaling_policies": "INSERT INTO scaling_policies VALUES ('j', 2, '{}', '[]', NULL, NULL, 1)",
    "idempotency": "INSERT INTO idempotency VALUES ('j', 'k', 'h', 1, 1, 1)",
    "rescales": (
        "INSERT INTO rescales VALUES ('j', 1, 'u1', 'r', 1, 'INITIAL_SCHEDULE', 1, 2, 'SUCCEEDED', 'COMPLETED', "
        "NULL, 'in-place', NULL, NULL, NULL, NULL, NULL, '[]', '[]', '[]')"
    ),
    "open rescale": (
        "INSERT INTO rescales VALUES ('j', 2, 'u2', 'r', 1, 'INITIAL_SCHEDULE', 1, NULL, NULL, NULL, "
        "NULL, NULL, NULL, NULL, NULL, NULL, NULL, '[]', '[]', '[]')"
    ),
    "attempts": (
        "INSERT INTO attempts (job_id, attempt, epoch, driver_id, secret_hash, state, started_ms) "
        "VALUES ('j', 1, 1, 'd', 'h', 'LIVE', 1)"
    ),
    "artifacts": "INSERT INTO artifacts (job_id, version, name, sha256, content) VALUES ('j', 1, 'a', 's', '')",
    "livy_batches": "INSERT INTO livy_batches (job_id) VALUES ('j')",
    "submission_keys": "INSERT INTO submission_keys VALUES ('me', 'k', 'j', 'd', 'f')",
}
_SECOND_OPEN = ROWS["open rescale"].replace("'j', 2, 'u2'", "'j', 3, 'u3'")

REFUSED = {
    "a job twice": ROWS["jobs"],
    "an unknown type of job": "UPDATE jobs SET type = 'OTHER'",
    "an unknown status": "UPDATE job_states SET status = 'SLEEPING'",
    "a job that ended without a time": "UPDATE job_states SET status = 'FINISHED'",
    "a time of ending for a job that runs": "UPDATE job_states SET ended_ms = 5",
    "a state number of 0": "UPDATE job_states SET seq = 0",
    "an epoch of 0": "UPDATE leases SET epoch = 0",
    "a state without its job": "INSERT INTO job_states VALUES ('x', 1, 't', 'RUNNING', NULL, '{}')",
    "a lease without its job": "INSERT INTO leases VALUES ('x', 'me', 1, 1)",
    "requirements without their job": "INSERT INTO requirements VALUES ('x', 1, 'u', '[]', NULL, NULL, NULL, 1)",
    "a version of requirements twice": ROWS["requirements"],
    "a version 0 of requirements": "INSERT INTO requirements VALUES ('j', 0, 'u', '[]', NULL, NULL, NULL, 1)",
    "other requirements under the same version": "UPDATE requirements SET bounds = '[1]'",
    "a version of a scaling policy twice": ROWS["scaling_policies"],
    "another scaling policy under the same version": "UPDATE scaling_policies SET vertices = '[1]'",
    "an idempotency key twice": ROWS["idempotency"],
    "an answer that is neither changed nor not": "UPDATE idempotency SET changed = 2",
    "two numbers of a Livy batch": ROWS["livy_batches"],
    "a Livy batch without its job": "INSERT INTO livy_batches (job_id) VALUES ('x')",
    "a key of a submission without its job": "INSERT INTO submission_keys VALUES ('me', 'l', 'x', 'd', 'f')",
    "two keys of one submission": "INSERT INTO submission_keys VALUES ('me', 'l', 'j', 'd', 'f')",
    "an artifact twice": ROWS["artifacts"],
    "an artifact of a version 0": ROWS["artifacts"].replace("'j', 1,", "'j', 0,"),
    "a second open rescale": _SECOND_OPEN,
    "a rescale number twice": ROWS["rescales"].replace("'u1'", "'u9'"),
    "a rescale number of 0": ROWS["rescales"].replace("'j', 1, 'u1'", "'j', 0, 'u9'"),
    "an unknown cause": "UPDATE rescales SET cause = 'WHIM' WHERE number = 2",
    "an unknown rung": "UPDATE rescales SET rung = 'magic' WHERE number = 2",
    "an unknown terminal state": (
        "UPDATE rescales SET end_ms = 3, reason = 'JOB_FINISHED', terminal_state = 'DONE' WHERE number = 2"
    ),
    "an unknown reason": (
        "UPDATE rescales SET end_ms = 3, reason = 'BORED', terminal_state = 'IGNORED' WHERE number = 2"
    ),
    "an end without a reason": "UPDATE rescales SET end_ms = 3 WHERE number = 2",
    "a reason without an end": (
        "UPDATE rescales SET reason = 'JOB_FINISHED', terminal_state = 'IGNORED' WHERE number = 2"
    ),
    "a terminal state without a reason": (
        "UPDATE rescales SET end_ms = 3, terminal_state = 'IGNORED' WHERE number = 2"
    ),
    "success that is not completed": (
        "UPDATE rescales SET end_ms = 3, reason = 'SUCCEEDED', terminal_state = 'IGNORED' WHERE number = 2"
    ),
    "completion without success": (
        "UPDATE rescales SET end_ms = 3, reason = 'JOB_FAILED', terminal_state = 'COMPLETED' WHERE number = 2"
    ),
    "an exception that is not a failure": (
        "UPDATE rescales SET end_ms = 3, reason = 'EXCEPTION_OCCURRED', terminal_state = 'IGNORED' WHERE number = 2"
    ),
    "a failure without an exception": (
        "UPDATE rescales SET end_ms = 3, reason = 'JOB_CANCELED', terminal_state = 'FAILED' WHERE number = 2"
    ),
    "another message for an ended rescale": "UPDATE rescales SET message = 'x' WHERE number = 1",
    "an ended rescale that opens again": (
        "UPDATE rescales SET end_ms = NULL, reason = NULL, terminal_state = NULL WHERE number = 1"
    ),
    "removing an open rescale": "DELETE FROM rescales WHERE number = 2",
    "a second live attempt": (
        "INSERT INTO attempts (job_id, attempt, epoch, driver_id, secret_hash, state, started_ms) "
        "VALUES ('j', 2, 1, 'd', 'h', 'LIVE', 1)"
    ),
    "an attempt 0": "UPDATE attempts SET attempt = 0",
    "an unknown state of an attempt": "UPDATE attempts SET state = 'UNDEAD'",
    "a dead attempt without a time": "UPDATE attempts SET state = 'DEAD'",
    "a live attempt that ended": "UPDATE attempts SET ended_ms = 5",
    "fewer than no reports": "UPDATE attempts SET acknowledged = -1",
}

ACCEPTED = {
    "an open rescale that ends": (
        "UPDATE rescales SET end_ms = 3, reason = 'SUCCEEDED', terminal_state = 'COMPLETED' WHERE number = 2"
    ),
    "an open rescale that goes on": "UPDATE rescales SET rung = 'new-driver' WHERE number = 2",
    "removing an ended rescale": "DELETE FROM rescales WHERE number = 1",
    "removing old requirements": "DELETE FROM requirements",
    "an attempt that dies": "UPDATE attempts SET state = 'DEAD', ended_ms = 5",
    "a job that ends": "UPDATE job_states SET status = 'FINISHED', ended_ms = 5",
    "forgetting the whole job": "DELETE FROM jobs",
}


def _fill(connection: Connection) -> None:
    for row in ROWS.values():
        connection.execute(text(row))


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def shared_engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """Connections to a database that many tests share, because each leaves it as it was."""
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.create_database()
    else:
        url = f"sqlite:///{tmp_path_factory.mktemp('shared')}/slotwise.db"
    schema.upgrade(url)
    engine = create(parse_url(url), write=True, pool_size=1)
    yield engine
    engine.dispose()
    if request.param == "postgresql":
        server.drop_database(url)


@pytest.fixture
def filled(shared_engine: Engine) -> Iterator[Connection]:
    """A connection in a transaction with a row in each table, rolled back in the end."""
    with shared_engine.connect() as connection, connection.begin() as transaction:
        _fill(connection)
        yield connection
        transaction.rollback()


@pytest.mark.parametrize("rule", REFUSED)
def test_the_schema_refuses(filled: Connection, rule: str) -> None:
    with pytest.raises(IntegrityError):
        filled.execute(text(REFUSED[rule]))


@pytest.mark.parametrize("rule", ACCEPTED)
def test_the_schema_accepts(filled: Connection, rule: str) -> None:
    assert filled.execute(text(ACCEPTED[rule])).rowcount == 1


def test_forgetting_a_job_leaves_no_row_of_it(engine: Engine) -> None:
    with engine.begin() as connection:
        _fill(connection)
        connection.execute(text("DELETE FROM jobs"))
        for table in metadata.tables:
            assert connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one() == 0, table


def test_the_migrations_make_the_tables_that_the_code_works_with(engine: Engine) -> None:
    with engine.connect() as connection:
        made = schema.config()
        made.attributes["connection"] = connection
        command.check(made)


def test_the_migrations_make_every_constraint_and_index_of_the_tables(engine: Engine) -> None:
    """What Alembic does not compare: CHECKs and the conditions of partial indexes."""
    found = inspect(engine)
    for table in metadata.tables.values():
        wanted = {str(c.name): str(c.sqltext) for c in table.constraints if isinstance(c, CheckConstraint)}
        made = {str(c["name"]): c["sqltext"] for c in found.get_check_constraints(table.name)}
        if engine.dialect.name == "sqlite":  # PostgreSQL writes a condition in its own words
            assert made == wanted, table.name
        assert set(made) == set(wanted), table.name
        partial = {
            str(index.name)
            for index in table.indexes
            if index.dialect_options[engine.dialect.name]["where"] is not None
        }
        reflected = {
            index["name"]
            for index in found.get_indexes(table.name)
            if index.get("dialect_options", {}).get(f"{engine.dialect.name}_where") is not None
        }
        assert reflected == partial, table.name


def test_the_tables_of_plugins_are_among_them() -> None:
    assert livy_batches in metadata.tables.values()


def test_migrations_go_up_and_down_and_up_again(new_database_url: str) -> None:
    schema.upgrade(new_database_url)
    engine = create(parse_url(new_database_url), write=True, pool_size=1)
    try:
        before = set(inspect(engine).get_table_names())
        schema.downgrade(new_database_url, "base")
        assert inspect(engine).get_table_names() == ["alembic_version"]
        schema.upgrade(new_database_url)
        schema.upgrade(new_database_url)
        assert set(inspect(engine).get_table_names()) == before == {*metadata.tables, "alembic_version"}
    finally:
        engine.dispose()


def test_servers_that_migrate_together_make_one_schema(new_database_url: str) -> None:
    errors: list[BaseException] = []

    def migrate() -> None:
        try:
            schema.upgrade(new_database_url)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=migrate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    engine = create(parse_url(new_database_url), write=True, pool_size=1)
    schema.check(engine, parse_url(new_database_url))
    engine.dispose()


@pytest.mark.asyncio
async def test_a_newer_schema_is_refused_with_a_sentence(new_database_url: str, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for migrate in (True, False):
        with pytest.raises(SchemaError, match="has schema 9999, which a newer version of Slotwise made"):
            await Store.open(new_database_url, "me", migrate=migrate)


@pytest.mark.asyncio
async def test_without_leave_to_migrate_an_empty_database_is_refused(new_database_url: str) -> None:
    with pytest.raises(SchemaError, match="has no schema yet"):
        await Store.open(new_database_url, "me", migrate=False)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("mysql://host/db", "'mysql' is not supported"),
        ("sqlite://", "must be a file"),
        ("sqlite:///:memory:", "must be a file"),
        ("not a url", "cannot be read"),
    ],
)
def test_a_url_of_no_supported_database_is_refused(url: str, sentence: str) -> None:
    with pytest.raises(StoreError, match=sentence):
        parse_url(url)


def test_a_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=f"{tmp_path}/none/x.db cannot be opened"):
        schema.upgrade(f"sqlite:///{tmp_path}/none/x.db")


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("This is a text, and a longer one than the header of a database. " * 20)
    with pytest.raises(StoreUnavailable, match="is not a SQLite database"):
        schema.upgrade(f"sqlite:///{tmp_path}/x.db")


def test_an_installed_package_brings_its_migrations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (schema.script_location() / "versions").is_dir()
    (tmp_path / "app" / "_migrations").mkdir(parents=True)
    (tmp_path / "app" / "_migrations" / "env.py").touch()
    monkeypatch.setattr("app.__file__", str(tmp_path / "app" / "__init__.py"))
    assert schema.script_location() == tmp_path / "app" / "_migrations"
    (tmp_path / "app" / "_migrations" / "env.py").unlink()
    with pytest.raises(SchemaError, match="migrations are missing"):
        schema.script_location()


def test_a_migration_that_rebuilds_a_table_keeps_what_hangs_on_it(sqlite_url: str) -> None:
    """SQLite alters a table by copying it and dropping the old one, which must not cascade."""
    schema.upgrade(sqlite_url)
    engine = create(parse_url(sqlite_url), write=True, pool_size=1)
    try:
        with engine.begin() as connection:
            _fill(connection)
        with schema.exclusive(sqlite_url) as (connection, _):
            operations = Operations(MigrationContext.configure(connection))
            with operations.batch_alter_table("jobs", recreate="always") as batch:
                batch.alter_column("name", nullable=True)
        with engine.connect() as connection:
            for table in ("jobs", "job_states", "rescales", "leases"):
                assert connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one(), table
    finally:
        engine.dispose()


def test_a_migration_that_loses_a_job_is_taken_back(sqlite_url: str) -> None:
    schema.upgrade(sqlite_url)
    engine = create(parse_url(sqlite_url), write=True, pool_size=1)
    try:
        with engine.begin() as connection:
            _fill(connection)
        with (
            pytest.raises(SchemaError, match=r"would leave [0-9]+ rows without job"),
            schema.exclusive(sqlite_url) as (connection, _),
        ):
            connection.execute(text("DELETE FROM jobs"))
        with engine.connect() as connection:
            assert connection.execute(text("SELECT count(*) FROM jobs")).scalar_one() == 1
    finally:
        engine.dispose()


def test_a_developer_runs_any_command_of_alembic(new_database_url: str) -> None:
    engine = create(parse_url(new_database_url), write=True, pool_size=1)
    try:
        run_alembic([new_database_url, "upgrade", "head"])
        with engine.connect() as connection:
            assert schema.current(connection) == schema.head()
        run_alembic([new_database_url, "check"])
        run_alembic([new_database_url, "downgrade", "base"])
        with engine.connect() as connection:
            assert schema.current(connection) is None
    finally:
        engine.dispose()


def test_a_wrong_url_on_the_command_line_is_a_sentence() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "app.store", "mysql://host/db", "current"],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.strip() == "The database 'mysql' is not supported: sqlite or postgresql is expected."

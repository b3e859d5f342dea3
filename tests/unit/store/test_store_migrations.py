"""What migrations make of the rows that are there, on SQLite and on PostgreSQL."""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from app.store.__main__ import main as run_alembic
from app.store.engine import create, parse_url
from app.store.events import insert_events, load_events
from tests.unit.store.test_store_schema import ROWS


def test_the_age_clock_of_a_database_in_use_begins_when_bounds_were_last_declared(
    new_database_url: str,
) -> None:
    engine = create(parse_url(new_database_url), write=True, pool_size=1)
    try:
        run_alembic([new_database_url, "upgrade", "0002"])
        with engine.begin() as connection:
            for table in ("jobs", "requirements"):
                connection.execute(text(ROWS[table]))
            connection.execute(text("UPDATE jobs SET submitted_ms = 70"))
            declared = connection.execute(text("SELECT max(created_ms) FROM requirements")).scalar_one()
        run_alembic([new_database_url, "upgrade", "head"])
        with engine.connect() as connection:
            assert connection.execute(text("SELECT id, reached_ms FROM age_clock")).all() == [(1, declared)]
    finally:
        engine.dispose()


def test_the_files_of_the_version_in_force_are_kept_on_the_way_up_and_down(new_database_url: str) -> None:
    """Of one job the second version is in force, and the third is beside it; the other was never replaced."""
    engine = create(parse_url(new_database_url), write=True, pool_size=1)

    def files(*columns: str) -> list[tuple[object, ...]]:
        with engine.connect() as connection:
            found = connection.execute(
                text(f"SELECT {', '.join(columns)} FROM artifacts ORDER BY job_id, sha256")
            )
            return [tuple(row) for row in found]

    try:
        run_alembic([new_database_url, "upgrade", "head"])
        with engine.begin() as connection:
            for job_id, state in (("j", '{"versions": {"current": 2}}'), ("k", "{}")):
                for table in ("jobs", "job_states"):
                    row = ROWS[table].replace("'j'", f"'{job_id}'").replace("'{}')", f"'{state}')")
                    connection.exec_driver_sql(row)
            for job_id, version in (("j", 2), ("j", 3), ("k", 1)):
                row = f"VALUES ('{job_id}', {version}, 'a', 's{version}', '')"
                connection.exec_driver_sql(
                    f"INSERT INTO artifacts (job_id, version, name, sha256, content) {row}"
                )
        run_alembic([new_database_url, "downgrade", "0003"])
        assert files("job_id", "name", "sha256") == [("j", "a", "s2"), ("k", "a", "s1")]
        run_alembic([new_database_url, "upgrade", "head"])
        assert files("job_id", "version", "sha256") == [("j", 2, "s2"), ("k", 1, "s1")]
    finally:
        engine.dispose()


def test_records_of_a_policy_are_allowed_and_become_those_of_bounds_on_the_way_down(
    new_database_url: str,
) -> None:
    """On SQLite the table is made anew: what guarded the rows before guards them afterwards."""
    engine = create(parse_url(new_database_url), write=True, pool_size=1)

    def found(query: str) -> list[tuple[object, ...]]:
        with engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(query))]

    def refused(statement: str) -> bool:
        try:
            with engine.begin() as connection:
                connection.execute(text(statement))
        except DBAPIError:
            return True
        return False

    of_policy = (
        ROWS["rescales"].replace("'j', 1, 'u1'", "'j', 3, 'u3'").replace("INITIAL_SCHEDULE", "UPDATE_POLICY")
    )
    try:
        run_alembic([new_database_url, "upgrade", "0008"])
        with engine.begin() as connection:
            for table in ("jobs", "rescales", "open rescale"):
                connection.execute(text(ROWS[table]))
        before = found("SELECT * FROM rescales ORDER BY number")
        assert refused(of_policy)
        run_alembic([new_database_url, "upgrade", "head"])
        assert found("SELECT * FROM rescales ORDER BY number") == before
        assert not refused(of_policy)
        guarded = (
            of_policy.replace("UPDATE_POLICY", "NOBODY").replace("'j', 3, 'u3'", "'j', 4, 'u4'"),
            "UPDATE rescales SET message = 'x' WHERE number = 3",
            "DELETE FROM rescales WHERE number = 2",
            ROWS["open rescale"].replace("'j', 2, 'u2'", "'j', 5, 'u5'"),
        )
        assert [refused(statement) for statement in guarded] == [True] * len(guarded)
        run_alembic([new_database_url, "downgrade", "0008"])
        assert found("SELECT number, cause FROM rescales ORDER BY number") == [
            (1, "INITIAL_SCHEDULE"),
            (2, "INITIAL_SCHEDULE"),
            (3, "UPDATE_REQUIREMENT"),
        ]
        assert [refused(statement) for statement in guarded] == [True] * len(guarded)
    finally:
        engine.dispose()


def test_events_have_the_same_numbers_with_and_without_an_index_by_job(new_database_url: str) -> None:
    engine = create(parse_url(new_database_url), write=True, pool_size=1)

    def of_job() -> list[int]:
        with engine.connect() as connection:
            return [one.id for one in load_events(connection, 1, 10, job_id="j").events]

    try:
        run_alembic([new_database_url, "upgrade", "0009"])
        with engine.begin() as connection:
            for job_id in ("j", "k"):
                connection.exec_driver_sql(ROWS["jobs"].replace("'j'", f"'{job_id}'"))
            insert_events(connection, [(job_id, "status", 1, "{}") for job_id in "jkjjk"])
        assert of_job() == [3, 4]
        run_alembic([new_database_url, "upgrade", "head"])
        with engine.begin() as connection:
            insert_events(connection, [("j", "status", 1, "{}")])
        assert of_job() == [3, 4, 6]
        run_alembic([new_database_url, "downgrade", "0009"])
        assert of_job() == [3, 4, 6]
    finally:
        engine.dispose()


def test_rescales_with_an_interrupted_batch_are_allowed_and_become_restarts_on_the_way_down(
    new_database_url: str,
) -> None:
    """In the states of jobs too: the version before would not know what it reads there."""
    engine = create(parse_url(new_database_url), write=True, pool_size=1)

    def found(query: str) -> list[object]:
        with engine.connect() as connection:
            return [row[0] for row in connection.execute(text(query))]

    def do(statement: str) -> bool:
        try:
            with engine.begin() as connection:
                connection.exec_driver_sql(statement)
        except DBAPIError:
            return False
        return True

    of_batch = (
        ROWS["rescales"].replace("'j', 1, 'u1'", "'j', 3, 'u3'").replace("in-place", "batch-interrupted")
    )
    state = '{"last": {"rung": "batch-interrupted"}}'
    try:
        run_alembic([new_database_url, "upgrade", "0012"])
        for table in ("jobs", "rescales", "open rescale"):
            assert do(ROWS[table])
        assert do(ROWS["job_states"].replace("'{}')", f"'{state}')"))
        assert not do(of_batch)
        run_alembic([new_database_url, "upgrade", "head"])
        assert do(of_batch)
        assert not do("UPDATE rescales SET message = 'x' WHERE number = 3"), "the guards are there again"
        run_alembic([new_database_url, "downgrade", "0012"])
        rungs = found("SELECT rung FROM rescales ORDER BY number")
        assert rungs == ["in-place", None, "query-restart"]
        assert found("SELECT state FROM job_states") == [state.replace("batch-interrupted", "query-restart")]
        assert not do("UPDATE rescales SET message = 'x' WHERE number = 3")
    finally:
        engine.dispose()

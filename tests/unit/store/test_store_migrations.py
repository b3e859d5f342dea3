"""What migrations make of the rows that are there, on SQLite and on PostgreSQL."""

from __future__ import annotations

from sqlalchemy import text

from app.store.__main__ import main as run_alembic
from app.store.engine import create, parse_url
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

"""Rows of dataclasses go by names."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, Text

from app.store.rows import Rows

TABLE = Table("birds", MetaData(), Column("legs", Integer), Column("job_id", Text), Column("note", Text))


@dataclass(frozen=True)
class Bird:
    note: str | None
    legs: int


def test_the_order_of_columns_and_fields_is_their_own_affair() -> None:
    rows = Rows(TABLE, Bird, {"note": (str.upper, str.lower)})
    assert rows.row("a", Bird("x", 2)) == {"job_id": "a", "legs": 2, "note": "X"}
    assert rows.row("a", Bird(None, 2)) == {"job_id": "a", "legs": 2, "note": None}


def test_a_field_without_a_column_is_found_at_the_start() -> None:
    @dataclass(frozen=True)
    class Fledged(Bird):
        wings: int = 2

    with pytest.raises(TypeError, match="birds has no columns wings"):
        Rows(TABLE, Fledged, {})

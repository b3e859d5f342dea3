"""Rows of dataclasses go by names."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, Text

from app.store.codec import Rows

TABLE = Table("birds", MetaData(), Column("job_id", Text), Column("legs", Integer), Column("note", Text))


@dataclass(frozen=True)
class Bird:
    note: str | None
    legs: int


def test_the_order_of_columns_and_fields_is_their_own_affair() -> None:
    rows = Rows(TABLE, Bird, {"note": (str.upper, str.lower)})
    assert rows.row("a", Bird("x", 2)) == ("a", 2, "X")
    assert rows.row("a", Bird(None, 2)) == ("a", 2, None)


def test_what_is_beside_the_fields_comes_last() -> None:
    table = Table("nests", MetaData(), *[Column(name) for name in ("job_id", "legs", "note", "made_ms")])
    assert Rows(table, Bird, {}, beside=("made_ms",)).row("a", Bird("x", 2), 7) == ("a", 2, "x", 7)
    with pytest.raises(TypeError, match="nests should have job_id first, and last legs"):
        Rows(table, Bird, {}, beside=("legs",))


def test_a_field_without_a_column_is_found_at_the_start() -> None:
    @dataclass(frozen=True)
    class Fledged(Bird):
        wings: int = 2

    with pytest.raises(TypeError, match="birds has no columns wings"):
        Rows(TABLE, Fledged, {})

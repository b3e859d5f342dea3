"""Ids: 32 hexadecimal digits, derived from names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.model.ids import InvalidId, derive_id, normalize_id, slot_sharing_group_id, vertex_id


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=5), max_size=3))
def test_a_derived_id_is_an_id_and_always_the_same(parts: list[str]) -> None:
    derived = derive_id(*parts)
    assert re.fullmatch("[0-9a-f]{32}", derived)
    assert derive_id(*parts) == derived == normalize_id(derived.upper())


def test_ids_of_different_things_differ() -> None:
    ids = {
        vertex_id("a", "b"),
        vertex_id("b", "a"),
        vertex_id("ab", ""),
        vertex_id("", "ab"),
        slot_sharing_group_id("a", "b"),
    }
    assert len(ids) == 5


@pytest.mark.parametrize(
    "text", ["", "x" * 32, "0" * 31, "0" * 33, "0" * 32 + "\n", "0" * 31 + "\u0660", "-" * 32]
)
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidId, match="32 hexadecimal digits"):
        normalize_id(text)

"""The table of formats, and what its page says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.model.formats import FORMATS, option_faults

ROOT = Path(__file__).parents[3]


def test_each_format_is_on_the_page_of_sources() -> None:
    page = (ROOT / "docs/sources.md").read_text(encoding="utf-8").splitlines()
    assert [each.name for each in FORMATS.values() if each.documented not in page] == []


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_found_by_its_name_and_takes_its_own_options(name: str) -> None:
    known = FORMATS[name]
    assert known.name == name
    assert option_faults(name, {option.upper(): "1" for option in known.options}) == []
    assert not known.split_option or known.split_option in known.options


def test_an_option_of_sparks_that_looks_like_another_is_taken() -> None:
    assert option_faults("csv", {"timeFormat": "HH:mm"}) == []

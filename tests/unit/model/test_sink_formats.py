"""The table of sink formats, what its page says of it, and what a document may ask of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.model.jobgraph import OutputMode
from app.model.sink_formats import OWN_SINKS, SINK_FORMATS, mode_fault, sink_option_faults

ROOT = Path(__file__).parents[3]


def test_each_format_is_on_the_page_of_sinks() -> None:
    page = (ROOT / "docs/sinks.md").read_text(encoding="utf-8").splitlines()
    assert [each.name for each in SINK_FORMATS.values() if each.documented not in page] == []


@pytest.mark.parametrize("name", SINK_FORMATS)
def test_a_format_is_found_by_its_name_and_takes_its_own_options(name: str) -> None:
    known = SINK_FORMATS[name]
    assert known.name == name and name not in OWN_SINKS
    given = {option.upper(): "true" for option in known.options} | (
        {} if name == "noop" else {"COMPRESSION": "none"}
    )
    assert list(sink_option_faults(name, given)) == []
    assert set(known.needs) <= set(known.options)


def test_options_that_nobody_knows_go_to_spark() -> None:
    assert list(sink_option_faults("org.example.Sink", {"anything": "1"})) == []
    assert list(sink_option_faults("orc", {"orc.stripe.size": "1"})) == []


@pytest.mark.parametrize("mode", OutputMode)
def test_spark_adds_to_files_and_nothing_else(mode: OutputMode) -> None:
    assert (mode_fault("orc", mode) is None) is (mode is OutputMode.APPEND)
    assert mode_fault("console", mode) is None
    assert mode_fault("org.example.Sink", mode) is None


def test_a_table_is_not_updated() -> None:
    assert mode_fault("delta", OutputMode.UPDATE) == (
        "update is not possible with format delta: take append or complete."
    )

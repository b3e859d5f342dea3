"""docs/batch.md names the job of its last section as the program of the example does."""

from __future__ import annotations

import re
from pathlib import Path

from app.documents.graph import parse_document
from tests.tpch import graphs

PAGE = Path(__file__).parents[2] / "docs" / "batch.md"


def test_the_job_of_the_page_is_called_as_the_page_calls_it() -> None:
    commands = PAGE.read_text().partition("## Try it")[2]
    (query, out, file) = re.findall(r"graphs[.]py (\S+) --data \S+ --out (\S+) > (\S+)[.]json", commands)[0]
    name = parse_document(graphs.document(query, Path("/data"), Path(out))).name
    assert file == name
    assert re.findall(r"slotwise submit (\S+)", commands) == [f"{name}.json"]
    assert set(re.findall(r"slotwise (?:watch|decisions) (\S+)", commands)) == {name}
    assert set(re.findall(r"--out (\S+)", commands)) == {out}

"""The parser, the schema of the API and the page of job graph documents name the fields of a document alike."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.documents.graph import GraphForm, VertexForm, parse_document
from app.model.grapherrors import GraphErrors

PAGE = Path(__file__).parents[2] / "docs/job-graph.md"


def parsed(document: object) -> set[str]:
    """The fields that the parser asks for where ``document`` has null."""
    with pytest.raises(GraphErrors) as refused:
        parse_document(document)
    (named,) = re.findall(r"should be a mapping with (.*?), found null", str(refused.value))
    return set(named.split(", "))


def on_the_page(heading: str) -> set[str]:
    """The fields in the table below ``heading``."""
    _, _, below = PAGE.read_text().partition(heading)
    rows = re.findall(r"^\| (`[^|]*`) \|", below.partition("\n#")[0], re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_the_fields_of_a_document_are_one_list() -> None:
    assert parsed(None) == set(GraphForm.hints()) == on_the_page("## The document")


def test_the_fields_of_a_vertex_are_one_list() -> None:
    fields = parsed({"name": "job", "type": "STREAMING", "vertices": [None]})
    assert fields == set(VertexForm.hints()) == on_the_page("## A vertex")

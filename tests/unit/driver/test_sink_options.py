"""What sinks make of their description, before they touch anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from app.driver.failures import DriverError
from app.driver.sinks.files import FileSink
from app.driver.sinks.opening import open_sink
from app.driver.sinks.postgresql import copy_lines
from app.model.jobgraph import JobVertex, SinkSpec

URL = "postgresql://u:s3cret@127.0.0.1/db"


def sink(sink_format: str, path: str | None = None, /, **options: str) -> Any:
    spec = SinkSpec(sink_format, path, options=tuple(options.items()))
    described = JobVertex("0" * 32, "store", spec, (), 1, 1, 128, "default", "1" * 32)
    return open_sink(described, work_dir=Path("/nowhere"), functions=lambda entry: pytest.fail(entry))


def test_an_url_that_cannot_be_read_is_refused_without_its_password() -> None:
    with pytest.raises(DriverError) as caught:
        sink("postgresql", table="t", url=URL + "?a%zz")
    assert str(caught.value).startswith(
        "The postgresql sink store has an url that cannot be read: postgresql://user"
    )
    assert "s3cret" not in str(caught.value)
    assert caught.value.vertex == "store" and not caught.value.recoverable


def test_a_representation_of_a_sink_does_not_show_the_password() -> None:
    assert "s3cret" not in repr(sink("postgresql", table="t", url=URL))


def header(names: list[str], **options: str) -> bytes:
    opened = sink("csv", "/out", header="true", **options)
    assert isinstance(opened, FileSink)
    return opened._header(names)


def test_a_csv_header_is_quoted_where_it_must_be() -> None:
    names = ["plain", "a,b", 'say "x"', " padded", "two\nlines", ""]
    assert header(names) == b'plain,"a,b","say \\"x\\""," padded","two\nlines",""\n'
    assert header(["a", "b"], sep="|", quote="'", escape="'", quoteAll="true") == b"'a'|'b'\n"


def test_lines_for_copy_escape_what_would_end_a_cell() -> None:
    text = pa.array(["a\tb", "c\nd\r", "\\N", None, ""])
    number = pa.array([1.5, float("nan"), float("-inf"), None, -0.0])
    lines = bytes(copy_lines([text, number]))
    assert lines == b"a\\tb\t1.5\nc\\nd\\r\tnan\n\\\\N\t-inf\n\\N\t\\N\n\t-0\n"


def test_lines_for_copy_of_a_slice_are_those_of_the_slice() -> None:
    array = pa.array(["a", "b", "c", "d"])
    assert bytes(copy_lines([array[1:3]])) == b"b\nc\n"

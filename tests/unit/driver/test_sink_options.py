"""What a sink refuses before it touches anything, in words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from app.driver.failures import DriverError
from app.driver.sinks import open_sink
from app.driver.sinks.files import FileSink, query_mark
from app.driver.sinks.merging import csv_header
from app.driver.sinks.postgresql import copy_lines
from app.model.jobgraph import JobVertex, OutputMode, SinkSpec

URL = "postgresql://u:s3cret@127.0.0.1/db"


def sink(
    sink_format: str, path: str | None = None, output: OutputMode = OutputMode.APPEND, /, **options: str
) -> Any:
    spec = SinkSpec(sink_format, path, output, tuple(options.items()))
    described = JobVertex("0" * 32, "store", spec, (), 1, 1, 128, "default", "1" * 32)

    def functions(entry: str) -> Callable[..., Any]:
        raise AssertionError(entry)

    return open_sink(described, work_dir=Path("/nowhere"), functions=functions)


@pytest.mark.parametrize(
    ("arguments", "options", "sentence"),
    [
        (("parquet",), {}, "needs a path."),
        (("parquet", "out"), {}, "has the path out, which must be absolute and on a mounted file system."),
        (
            ("json", "hdfs://host/out"),
            {},
            "has the path hdfs://host/out, which must be absolute and on a mounted",
        ),
        (
            ("parquet", "/out"),
            {"partitionBy": "a"},
            "has the option partitionBy, which is not an option of a parquet sink. Allowed are compression.",
        ),
        (
            ("parquet", "/out"),
            {"compression": "lzo"},
            "has the option compression, which should be one of snappy, zstd, gzip",
        ),
        (
            ("csv", "/out"),
            {"compression": "snappy"},
            "compression, which should be one of none, gzip, bzip2, found 'snappy'.",
        ),
        (
            ("csv", "/out"),
            {"header": "yes"},
            "has the option header, which should be true or false, found 'yes'.",
        ),
        (
            ("csv", "/out"),
            {"quoteAll": "1"},
            "the option quoteAll, which should be true or false, found '1'.",
        ),
        (("csv", "/out"), {"sep": "||"}, "has the option sep, which should be one character, found '||'."),
        (("sqlite", "/a.db"), {}, "needs the option table."),
        (("sqlite",), {"table": "t"}, "needs a path."),
        (("sqlite", "a.db"), {"table": "t"}, "has the path a.db, which must be the absolute path of a file."),
        (
            ("sqlite", "/a.db"),
            {"table": "t", "mode": "merge"},
            "mode: merge, which must be one of append, upsert.",
        ),
        (("sqlite", "/a.db"), {"table": "t", "mode": "upsert"}, "has mode: upsert and needs the option keys"),
        (("sqlite", "/a.db"), {"table": "t", "keys": "a"}, "has the option keys, which is for mode: upsert."),
        (
            ("sqlite", "/a.db"),
            {"table": "t", "mode": "upsert", "keys": "a,,b"},
            "keys: a,,b, which must be differ",
        ),
        (("sqlite", "/a.db"), {"table": "_slotwise_batches"}, "may not write to _slotwise_batches"),
        (("postgresql",), {"table": "t"}, "needs the option url."),
        (
            ("postgresql",),
            {"table": "t", "url": URL + "?a%zz"},
            "has an url that cannot be read: postgresql://user",
        ),
        (("noop",), {"a": "b"}, "does not know the option a: it has none."),
        (("python",), {}, "needs a function, written module:function."),
    ],
)
def test_a_sink_that_cannot_be_is_refused_with_a_sentence(
    arguments: tuple[Any, ...], options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(DriverError) as caught:
        sink(*arguments, **options)
    assert str(caught.value).startswith(f"The {arguments[0]} sink store ")
    assert sentence in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert caught.value.vertex == "store"
    assert not caught.value.recoverable


@pytest.mark.parametrize("path", ["/a/out", "file:/a/out", "file:///a/out"])
def test_a_path_may_be_a_file_url(path: str) -> None:
    opened = sink("parquet", path)
    assert isinstance(opened, FileSink)
    assert opened.directory == Path("/a/out")


def test_a_representation_of_a_sink_does_not_show_the_password() -> None:
    assert "s3cret" not in repr(sink("postgresql", table="t", url=URL))


def test_files_of_two_queries_never_have_one_name() -> None:
    uuid = "6F9619FF-8B86-4D01-B42D-00CF4FC964FF"
    assert query_mark(uuid) == "6f9619ff8b864d01b42d00cf4fc964ff"
    marks = {query_mark(each) for each in (uuid, "a/../b", "a", "", "A")}
    assert len(marks) == 5
    assert all(len(mark) == 32 and mark.isalnum() for mark in marks)


def test_a_csv_header_is_quoted_where_it_must_be() -> None:
    names = ["plain", "a,b", 'say "x"', " padded", "two\nlines", ""]
    header = csv_header(names, sep=",", quote='"', escape="\\", quote_all=False)
    assert header == b'plain,"a,b","say \\"x\\""," padded","two\nlines",""\n'
    assert csv_header(["a", "b"], sep="|", quote="'", escape="'", quote_all=True) == b"'a'|'b'\n"


def test_lines_for_copy_escape_what_would_end_a_cell() -> None:
    text = pa.array(["a\tb", "c\nd\r", "\\N", None, ""])
    number = pa.array([1.5, float("nan"), float("-inf"), None, -0.0])
    lines = bytes(copy_lines([text, number]))
    assert lines == b"a\\tb\t1.5\nc\\nd\\r\tnan\n\\\\N\t-inf\n\\N\t\\N\n\t-0\n"


def test_lines_for_copy_of_a_slice_are_those_of_the_slice() -> None:
    array = pa.array(["a", "b", "c", "d"])
    assert bytes(copy_lines([array[1:3]])) == b"b\nc\n"

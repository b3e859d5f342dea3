"""Record boundaries and decoding: every way of cutting a file gives the rows of reading it whole."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from app.driver.sources import records
from app.driver.sources.decode import Window, decode, instants
from app.driver.sources.decode_csv import CsvDecoder, file_columns
from app.driver.sources.decode_json import JsonDecoder, TextDecoder
from app.driver.sources.errors import SourceError
from app.driver.sources.records import TextShape, index_records, open_bytes, read_range, split_records
from app.model.source_options import CsvOptions

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
CSV = TextShape(quote=ord('"'))
ALPHABET = ["a", ",", '"', "\n", "\r\n", " ", "é", "5"]


def written(values: list[str], style: int) -> str:
    output = io.StringIO()
    csv.writer(output, quoting=style, lineterminator="\n").writerows([i, v] for i, v in enumerate(values))
    return output.getvalue()


@pytest.mark.parametrize("seed", range(40))
def test_any_cut_of_a_csv_file_gives_the_same_rows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    # Blocks so small that quotes and line breaks fall on both sides of their edges.
    monkeypatch.setattr(records, "_BLOCK", chance.choice([1, 2, 3, 7, 64, 1 << 22]))
    values = [
        "".join(chance.choices(ALPHABET, k=chance.randrange(6)))
        for _ in range(chance.choice([0, 1, 63, 64, 200]))
    ]
    content = written(values, chance.choice([csv.QUOTE_ALL, csv.QUOTE_MINIMAL])).encode()
    if chance.random() < 0.5:
        content = content.removesuffix(b"\n")
    index = index_records(content, CSV)
    assert index.rows == len(values)
    decoder = CsvDecoder(SCHEMA, ("id", "name"), CsvOptions(), "UTC")
    for _ in range(10):
        first = chance.randrange(index.rows + 1)
        last = chance.randint(first, index.rows)
        if first == last:
            continue
        begin, end, rows, skip = index.span(first, last)
        tables = decode(decoder, Window(content[begin:end], rows, skip, last - first), "FAILFAST", str)
        found = [(row["id"], row["name"]) for table in tables for row in table.to_pylist()]
        assert found == [(i, values[i] or None) for i in range(first, last)]


@pytest.mark.parametrize("block", [1, 2, 5, 1 << 22])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", []),
        (b"\n\r\n\n", []),
        (b"1,a", [b"1,a"]),
        (b"\n1,a\n\n\r\n2,b\r\n", [b"1,a", b"2,b\r"]),
        (b'1,"a\nb"\n2,c\n', [b'1,"a\nb"', b"2,c"]),
        (b'1,5" pipe\n2,c\n', [b'1,5" pipe', b"2,c"]),
        (b'1,5" x 6"\n2,"a\nb"\n3,"""q"""\n', [b'1,5" x 6"', b'2,"a\nb"', b'3,"""q"""']),
        (b'1,"a"b\n2,c', [b'1,"a"b', b"2,c"]),
        (b'1,""\n2,\n', [b'1,""', b"2,"]),
        (b'1,"never closed\n2,b\n', [b'1,"never closed\n2,b\n']),
    ],
)
def test_csv_records(text: bytes, expected: list[bytes], block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_BLOCK", block)
    assert split_records(text, CSV) == expected


def test_json_lines_of_white_space_are_nothing_and_text_lines_are_rows() -> None:
    text = b'{"a":1}\n\n   \n  {"a":2}\r\n'
    assert split_records(text, TextShape(json=True)) == [b'{"a":1}', b'  {"a":2}\r']
    assert index_records(text, TextShape(keep_blank=True)).rows == 4


def test_a_header_and_a_byte_order_mark_are_no_rows() -> None:
    index = index_records(b'\xef\xbb\xbf"id",name\r\n1,a\n', TextShape(quote=34, header=True))
    assert (index.rows, index.header) == (1, b'"id",name')
    assert index.span(0, 1) == (14, 18, 1, 0)


def test_a_compressed_file_is_read_like_a_plain_one(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.csv", tmp_path / "a.csv.gz"
    content = b"".join(b"%d,x\n" % i for i in range(1000))
    plain.write_bytes(content)
    packed.write_bytes(gzip.compress(content))
    assert bytes(open_bytes(plain)) == bytes(open_bytes(packed)) == content
    assert read_range(plain, 10, 20) == read_range(packed, 10, 20) == content[10:20]
    packed.write_bytes(gzip.compress(content)[:-9])
    with pytest.raises(SourceError, match="not a whole gzip file"):
        open_bytes(packed)


def csv_rows(content: bytes, mode: str = "FAILFAST", schema: pa.Schema = SCHEMA) -> list[dict[str, object]]:
    decoder = CsvDecoder(schema, tuple(schema.names), CsvOptions(null_value="NA"), "UTC")
    rows = len(split_records(content, CSV))

    def place(position: int) -> str:
        return f"line {content[:position].count(10) + 1}"

    tables = decode(decoder, Window(content, rows, 0, rows), mode, place)  # type: ignore[arg-type]
    return [row for table in tables for row in table.to_pylist()]


MALFORMED = b'1,a\n"2","b\nb"\nx3,c\n4\n5,"NA"\n6,f,g\n'


def test_failfast_names_line_column_and_value() -> None:
    with pytest.raises(SourceError, match=r"^line 4: column id: 'x3' is not a BIGINT\.$"):
        csv_rows(MALFORMED)
    with pytest.raises(
        SourceError, match=r"^line 2: the row has 1 values, but 2 columns are expected: '4'\.$"
    ):
        csv_rows(b"1,a\n4\n")
    with pytest.raises(SourceError, match=r"^line 1: the row is not UTF-8 text\.$"):
        csv_rows(b"1,\xff\n")
    with pytest.raises(SourceError, match=r"^line 1: the row cannot be read: '1,a\\r2,b'\.$"):
        csv_rows(b"1,a\r2,b\n")


def test_dropmalformed_and_permissive() -> None:
    assert csv_rows(MALFORMED, "DROPMALFORMED") == [
        {"id": 1, "name": "a"},
        {"id": 2, "name": "b\nb"},
        {"id": 5, "name": None},
    ]
    assert csv_rows(MALFORMED, "PERMISSIVE") == [
        {"id": 1, "name": "a"},
        {"id": 2, "name": "b\nb"},
        {"id": None, "name": "c"},
        {"id": 4, "name": None},
        {"id": 5, "name": None},
        {"id": 6, "name": "f"},
    ]


def test_a_malformed_row_beyond_the_wanted_ones_does_no_harm() -> None:
    decoder = CsvDecoder(SCHEMA, ("id", "name"), CsvOptions(), "UTC")
    tables = decode(decoder, Window(b"1,a\n2,b\nx,c\n", 3, 0, 2), "FAILFAST", str)
    assert [row["id"] for table in tables for row in table.to_pylist()] == [1, 2]


def test_columns_are_taken_by_the_names_of_the_header() -> None:
    options = CsvOptions(header=True)
    assert file_columns("f", b"Name,other,id", SCHEMA, options) == ("name", "other", "id")
    decoder = CsvDecoder(SCHEMA, ("name", "other", "id"), options, "UTC")
    assert decoder.parse(b"a,zzz,1\n").to_pylist() == [{"id": 1, "name": "a"}]
    with pytest.raises(SourceError, match="the header has no column name; it names 'id, nam'"):
        file_columns("f", b"id,nam", SCHEMA, options)
    with pytest.raises(SourceError, match="more than one column id"):
        file_columns("f", b"id,name,id", SCHEMA, options)


def test_instants_follow_their_offset_or_the_session() -> None:
    texts = pa.array(["2013-01-01 10:00:00", "2013-01-01T10:00:00Z", None, " 2013-07-01 10:00:00.5+02:00"])
    assert instants(texts, "America/New_York").to_pylist() == [
        datetime(2013, 1, 1, 15, tzinfo=UTC),
        datetime(2013, 1, 1, 10, tzinfo=UTC),
        None,
        datetime(2013, 7, 1, 8, 0, 0, 500_000, tzinfo=UTC),
    ]
    assert instants(pa.array([], pa.string()), "UTC").to_pylist() == []


JSON_SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("tags", pa.list_(pa.string())),
    ]
)


def json_rows(content: bytes, mode: str = "FAILFAST") -> list[dict[str, object]]:
    rows = len(split_records(content, TextShape(json=True)))
    window = Window(content, rows, 0, rows)
    tables = decode(JsonDecoder(JSON_SCHEMA, "UTC"), window, mode, str)  # type: ignore[arg-type]
    return [row for table in tables for row in table.to_pylist()]


def test_json_values_and_what_is_malformed() -> None:
    good = json.dumps(
        {"id": 1, "at": "2013-01-01 10:00:00", "day": "2013-01-02", "tags": ["x"], "more": 1}
    ).encode()
    assert json_rows(good + b"\n{}\n") == [
        {
            "id": 1,
            "at": datetime(2013, 1, 1, 10, tzinfo=UTC),
            "day": datetime(2013, 1, 2).date(),
            "tags": ["x"],
        },
        {"id": None, "at": None, "day": None, "tags": None},
    ]
    with pytest.raises(SourceError, match=r"column id: '1\.5' is not an INT"):
        json_rows(b'{}\n{"id":1.5}\n')
    with pytest.raises(SourceError, match="not a JSON object"):
        json_rows(b'{}\n{"id":\n')
    assert [r["id"] for r in json_rows(b'{"id":1}\n{"id":"x","tags":["t"]}\n[1]\n', "PERMISSIVE")] == [
        1,
        None,
        None,
    ]
    assert [r["id"] for r in json_rows(b'{"id":1}\n{"id":"x"}\n[1]\n{"id":2}', "DROPMALFORMED")] == [1, 2]


def test_text_lines() -> None:
    decoder = TextDecoder(pa.schema([("value", pa.string())]))
    assert decoder.parse(b"a\r\n\nb").to_pylist() == [{"value": "a"}, {"value": ""}, {"value": "b"}]
    with pytest.raises(SourceError, match="not UTF-8 text"):
        decode(decoder, Window(b"a\n\xff\n", 2, 0, 2), "FAILFAST", str)

"""The reader of file sinks that the tests share."""

from __future__ import annotations

import bz2
import gzip
import json
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from tests.outputs import files_of, newest, rows_of


def log(folder: Path, name: str, *actions: tuple[str, str]) -> None:
    """A file of Spark's log of ``folder``."""
    place = folder / "_spark_metadata"
    place.mkdir(parents=True, exist_ok=True)
    said = [
        {
            "path": "file://" + quote(str(folder / file)),
            "size": 1,
            "isDir": False,
            "modificationTime": 1,
            "blockReplication": 1,
            "blockSize": 1,
            "action": action,
        }
        for action, file in actions
    ]
    (place / name).write_text("\n".join(["v1", *map(json.dumps, said)]), encoding="utf-8")


def test_without_a_log_every_file_that_is_not_hidden_counts(tmp_path: Path) -> None:
    for name in (
        "b.json",
        "a=1/c.json",
        ".b.json.crc",
        "_SUCCESS",
        ".staging/x/d.json",
        "_temporary/0/e.json",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('{"n": 1}\n')
    assert files_of(tmp_path) == [tmp_path / "a=1/c.json", tmp_path / "b.json"]
    assert rows_of(tmp_path) == [{"n": 1}, {"n": 1}]
    assert rows_of(tmp_path / "missing") == []


def test_files_that_the_log_does_not_name_do_not_count(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    log(folder, "0", ("add", "a.json"))
    log(folder, "1")
    (folder / "a.json").write_text('{"n": 1}\n{"n": 2}\n')
    (folder / "not committed.json").write_text('{"n": 3}\n')
    assert rows_of(folder) == [{"n": 1}, {"n": 2}]


def test_a_log_without_a_batch_names_no_file(tmp_path: Path) -> None:
    (tmp_path / "_spark_metadata").mkdir()
    (tmp_path / "_spark_metadata" / ".0.tmp").write_text("v1\n")
    (tmp_path / "a.json").write_text('{"n": 1}\n')
    assert rows_of(tmp_path) == []
    assert newest(tmp_path / "_spark_metadata") is None


def test_a_compaction_stands_for_what_came_before_it(tmp_path: Path) -> None:
    log(tmp_path, "8", ("add", "8.json"))
    log(tmp_path, "9.compact", ("add", "8.json"), ("add", "9.json"), ("delete", "8.json"))
    log(tmp_path, "10", ("add", "10.json"))
    log(tmp_path, "11", ("add", "10.json"))
    assert [file.name for file in files_of(tmp_path)] == ["9.json", "10.json"]
    assert newest(tmp_path / "_spark_metadata") == tmp_path / "_spark_metadata" / "11"


def test_a_log_of_another_version_is_not_guessed_at(tmp_path: Path) -> None:
    (tmp_path / "_spark_metadata").mkdir()
    (tmp_path / "_spark_metadata" / "0").write_text("v2\n")
    with pytest.raises(AssertionError, match="has the format v2"):
        files_of(tmp_path)


def test_each_kind_of_file_is_read(tmp_path: Path) -> None:
    table = pa.table({"a": [1, 2], "b": ["x", "y\u2028z"]})
    pq.write_table(table, tmp_path / "1.snappy.parquet")
    orc.write_table(table, tmp_path / "2.orc")
    (tmp_path / "3.json.gz").write_bytes(gzip.compress('{"a": 1, "b": "y\u2028z"}\n'.encode()))
    (tmp_path / "4.csv.bz2").write_bytes(bz2.compress(b'a,b\n1,"x\ny"\n'))
    (tmp_path / "5.txt").write_text("one\n\ntwo\n")
    numbers = [{"a": 1, "b": "x"}, {"a": 2, "b": "y\u2028z"}]
    texts = [{"value": "one"}, {"value": ""}, {"value": "two"}]
    lines = [{"a": 1, "b": "y\u2028z"}, {"a": "1", "b": "x\ny"}]
    assert rows_of(tmp_path) == [*numbers, *numbers, *lines, *texts]
    (tmp_path / "6.xml").touch()
    with pytest.raises(AssertionError, match="is of no known kind"):
        rows_of(tmp_path)

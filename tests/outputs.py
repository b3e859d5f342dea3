"""What queries have written into folders of files, read without Spark."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq
from pyarrow import orc

SINK_LOG = "_spark_metadata"
_UNPACK: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.decompress, ".bz2": bz2.decompress}


def batch_of(file: Path) -> int:
    return int(file.name.removesuffix(".compact"))


def newest(log: Path) -> Path | None:
    return max(_numbered(log), key=batch_of, default=None)


def entries(log: Path) -> Iterator[Any]:
    """What a metadata log of Spark's says: its last compaction, and what came after that."""
    files = _numbered(log)
    since = max((batch_of(one) for one in files if one.suffix == ".compact"), default=-1)
    for file in sorted(files, key=batch_of):
        if batch_of(file) >= since:
            version, *lines = file.read_text(encoding="utf-8").splitlines()
            assert version == "v1", f"{file} has the format {version}"
            yield from map(json.loads, lines)


def files_of(folder: Path) -> list[Path]:
    """The files that count in ``folder``: those that Spark's log names if it is there, else all that are not hidden."""
    if (folder / SINK_LOG).is_dir():
        named: dict[str, None] = {}
        for entry in entries(folder / SINK_LOG):
            if entry["action"] == "delete":
                named.pop(entry["path"], None)
            else:
                named[entry["path"]] = None
        return [Path(unquote(urlparse(path).path)) for path in named]
    found: list[Path] = []
    # Not `rglob`, which fails on folders that a query removes meanwhile: those are hidden, and are not looked into.
    for place, folders, names in os.walk(folder):
        folders[:] = _visible(folders)
        found += [Path(place, name) for name in _visible(names)]
    return sorted(found)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """The rows of the files that count in ``folder``. CSV needs a header, and text has the column ``value``."""
    return [row for file in files_of(folder) for row in _rows(file)]


def _visible(names: list[str]) -> list[str]:
    return [name for name in names if name[0] not in "._"]


def _numbered(log: Path) -> list[Path]:
    return [one for one in log.glob("*") if one.name.removesuffix(".compact").isdigit()]


def _rows(file: Path) -> list[dict[str, Any]]:
    plain = file.name.removesuffix(file.suffix) if file.suffix in _UNPACK else file.name
    kind = Path(plain).suffix
    # Not `read_table`, which would make columns of folders like `a=1`.
    if kind == ".parquet":
        return pq.ParquetFile(file).read().to_pylist()  # type: ignore[no-any-return]
    if kind == ".orc":
        return orc.ORCFile(file).read().to_pylist()  # type: ignore[no-any-return]
    text = _UNPACK.get(file.suffix, bytes)(file.read_bytes()).decode()
    if kind == ".csv":
        return list(csv.DictReader(io.StringIO(text, newline="")))
    lines = text.split("\n")[:-1]
    if kind == ".txt":
        return [{"value": line} for line in lines]
    assert kind == ".json", f"{file} is of no known kind"
    return [json.loads(line) for line in lines]

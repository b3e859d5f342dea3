"""Checkpoint files of this host are made and renamed without child processes, and as Hadoop's own class does it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from app.driver.localfiles import checkpoint_files
from tests.integration.driver.sink_support import spark_session

HADOOPS = "org.apache.hadoop.fs.local.RawLocalFs"


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with spark_session() as session:
        yield session._jvm


@pytest.fixture
def ours(jvm: Any, tmp_path: Path) -> str:
    return checkpoint_files(jvm, tmp_path)


class Files:
    """Hadoop's files of this host, behind the class of this name."""

    def __init__(self, jvm: Any, name: str, directory: Path) -> None:
        self._jvm = jvm
        self._directory = directory
        settings = jvm.org.apache.hadoop.conf.Configuration()
        settings.set("fs.AbstractFileSystem.file.impl", name)
        self._context = jvm.org.apache.hadoop.fs.FileContext.getFileContext(settings)

    def path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path((self._directory / name).as_uri())

    def write(self, name: str, text: bytes) -> None:
        stream = self._context.create(self.path(name)).build()
        stream.write(text)
        stream.close()

    def rename(self, source: str, target: str, *how: str) -> None:
        options = self._jvm.org.apache.hadoop.fs.Options.Rename
        chosen = SparkSession.active().sparkContext._gateway.new_array(options, len(how))
        for place, each in enumerate(how):
            chosen[place] = options.valueOf(each)
        self._context.rename(self.path(source), self.path(target), chosen)

    def status(self, name: str) -> Any:
        return self._context.getFileLinkStatus(self.path(name))


def children_of_java(jvm: Any) -> int:
    """Grows with each child process of the JVM that has ended: their page faults, as the kernel counts them."""
    process = jvm.java.lang.ProcessHandle.current().pid()
    status = Path(f"/proc/{process}/stat").read_text(encoding="ascii")
    return int(status.rpartition(")")[2].split()[8])


def test_no_child_process_is_started(jvm: Any, ours: str, tmp_path: Path) -> None:
    started: dict[str, list[int]] = {ours: [], HADOOPS: []}
    for name, counts in started.items():
        files = Files(jvm, name, tmp_path)
        for turn in range(5):
            before = children_of_java(jvm)
            files.write("new", b"text")
            files.rename("new", f"{name}-{turn}")
            counts.append(children_of_java(jvm) - before)
    # Spark and Hadoop start children of their own now and then, but not in each of five short moments.
    assert min(started[ours]) == 0
    assert min(started[HADOOPS]) > 0


def test_the_class_is_defined_once(jvm: Any, ours: str, tmp_path: Path) -> None:
    assert checkpoint_files(jvm, tmp_path) == ours != HADOOPS


def test_nothing_is_left_of_the_trial(ours: str, tmp_path: Path) -> None:
    assert ours != HADOOPS
    assert not list(tmp_path.iterdir())


def test_where_it_cannot_be_tried_hadoop_s_own_is_taken(jvm: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert checkpoint_files(jvm, tmp_path / "file") == HADOOPS


@pytest.mark.parametrize("mask", ["000", "022", "077"])
def test_a_file_has_the_rights_that_hadoop_gives_it(jvm: Any, ours: str, tmp_path: Path, mask: str) -> None:
    modes = []
    for name in (ours, HADOOPS):
        files = Files(jvm, name, tmp_path)
        files._context.setUMask(jvm.org.apache.hadoop.fs.permission.FsPermission(mask))
        files.write(name, b"text")
        modes.append(os.stat(tmp_path / name).st_mode)
    assert modes[0] == modes[1]


def test_a_directory_keeps_the_group_of_the_one_above(jvm: Any, ours: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o2755)
    modes = []
    for name in (ours, HADOOPS):
        files = Files(jvm, name, tmp_path)
        rights = jvm.org.apache.hadoop.fs.permission.FsPermission("755")
        files._context.mkdir(files.path(name), rights, False)
        modes.append(oct(os.stat(tmp_path / name).st_mode & 0o7777))
    assert modes == ["0o2755", "0o2755"]


def test_what_is_there_is_overwritten_only_if_asked_for(jvm: Any, ours: str, tmp_path: Path) -> None:
    files = Files(jvm, ours, tmp_path)
    files.write("old", b"old")
    files.write("new", b"new")
    with pytest.raises(Py4JJavaError, match="already exists"):
        files.rename("new", "old")
    assert (tmp_path / "old").read_bytes() == b"old"
    files.rename("new", "old", "OVERWRITE")
    assert (tmp_path / "old").read_bytes() == b"new"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("target", ["file", "nowhere"])
def test_a_link_is_for_both_what_it_is_for_hadoop(jvm: Any, ours: str, tmp_path: Path, target: str) -> None:
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "link").symlink_to(tmp_path / target)
    found = []
    for name in (ours, HADOOPS):
        try:
            status = Files(jvm, name, tmp_path).status("link")
            found.append((status.isSymlink(), status.isFile(), status.getLen()))
        except Py4JJavaError as error:
            found.append(error.java_exception.getMessage())
    assert found[0] == found[1]


def test_what_is_missing_is_missing(jvm: Any, ours: str, tmp_path: Path) -> None:
    with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
        Files(jvm, ours, tmp_path).status("nowhere")

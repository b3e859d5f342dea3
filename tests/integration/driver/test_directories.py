"""The directory of a location is the one that Spark uses, and the server, which has no Spark, knows the same one."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from posixpath import normpath
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from app.driver.directories import directory_of, path_of_uri
from app.model.locations import plain_location
from tests.integration.driver.sink_support import spark_session

ABSOLUTE = (
    "{tmp}/bare",
    "file:{tmp}/one",
    "file://{tmp}/three",
    "file:///{tmp}/four",
    "//{tmp}//more///slashes",
    "{tmp}/a slash behind/",
    "{tmp}/x/../above",
    "file:{tmp}/./this/.",
    "{tmp}/link/behind a link",
    "{tmp}/link/../above a link",
    "{tmp}/a blank",
    "{tmp}/one behind ",
    "file:{tmp}/a%20blank",
    "{tmp}/a%20blank",
    "{tmp}/100%",
    "{tmp}/%2e%2e/%2F",
    "file://{tmp}/a#hash",
    "{tmp}/a#hash",
    "file:{tmp}/a?question=1",
    "{tmp}/a?question=1",
    "{tmp}/a@sign",
    "file://{tmp}/a@sign",
    "{tmp}/größe/数",
    "file:{tmp}/gr%C3%B6ße",
    "{tmp}/e\u0301",
    "{tmp}/a:b;c+d&e='f'",
    "{tmp}/[a]{{b,c}}*",
    "{tmp}/back\\slash",
    "{tmp}/x:\\slash",
)
RELATIVE = ("relative", "./here#1", "a/../b%20c", "../{name}/up", "~/home", "a/b:c", " blank")
NONE = ("a:b", "", "file:relative", "file://host/a", "file://localhost/a", "//host/a")


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    with spark_session() as made:
        yield made


@pytest.fixture
def home(session: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """The working directory, of which Python knows nothing. Hadoop has it in two places."""
    jvm: Any = session._jvm
    conf = session._jsparkSession.sessionState().newHadoopConf()
    files = jvm.org.apache.hadoop.fs.FileSystem.getLocal(conf)
    before = files.getWorkingDirectory()
    files.setWorkingDirectory(jvm.org.apache.hadoop.fs.Path(str(tmp_path)))
    was = jvm.System.setProperty("user.dir", str(tmp_path))
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far" / "away")
    yield tmp_path
    files.setWorkingDirectory(before)
    jvm.System.setProperty("user.dir", was)


@pytest.mark.parametrize("spelled", [*ABSOLUTE, *RELATIVE])
def test_it_is_where_spark_writes_and_reads(session: SparkSession, home: Path, spelled: str) -> None:
    location = spelled.format(tmp=home, name=home.name)
    rows = session.readStream.format("rate").load()
    # Both make something there before the first batch.
    query = rows.writeStream.format("parquet").start(location, checkpointLocation=location)
    query.stop()
    (used,) = (file.parent for file in home.rglob("metadata") if file.is_file())
    assert (used / "_spark_metadata").is_dir()

    found = directory_of(session, location)
    assert found is not None and found.is_absolute() and found.resolve() == used
    plain = plain_location(location)
    assert (plain and os.path.realpath(plain)) == (str(used) if spelled in ABSOLUTE else None)
    if not set(location) & set("*?[]{}\\"):
        file = used / "in" / "a #%20.txt"
        file.parent.mkdir()
        file.touch()
        (read,) = session.read.text(f"{location}/in").inputFiles()
        assert (there := path_of_uri(read)) is not None and there.resolve() == file


@pytest.mark.parametrize("location", NONE)
def test_what_spark_does_not_take_is_no_directory(session: SparkSession, location: str) -> None:
    assert plain_location(location) is None
    for ask in (session.range(1).write.parquet, partial(directory_of, session)):
        with pytest.raises((IllegalArgumentException, Py4JJavaError)):
            ask(location)


@pytest.mark.parametrize(
    "location", ["hdfs://nowhere:1/a/../b/", "s3a://bucket/b", "s3a:/b", "abfss://c@d/e"]
)
def test_another_file_system_has_none_and_is_not_asked(session: SparkSession, location: str) -> None:
    assert directory_of(session, location) is None
    assert plain_location(location) == plain_location(f"{location}//./x/..")
    assert not str(plain_location(location)).startswith("/")


def test_a_bare_path_is_one_of_the_default_file_system(session: SparkSession, tmp_path: Path) -> None:
    other = session.newSession()
    other.conf.set("fs.defaultFS", "hdfs://nowhere:1")
    assert directory_of(other, str(tmp_path)) is None
    assert directory_of(other, f"file:{tmp_path}") == tmp_path


def test_both_agree_on_whatever_is_written(session: SparkSession) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    jvm: Any = session._jvm
    parts = (
        "/",
        "/",
        "//",
        "..",
        ".",
        ":",
        "file:",
        "FILE:",
        "a",
        "b",
        "%2F",
        "%",
        "#",
        "?",
        "@",
        " ",
        "ö",
        "\\",
        "x:\\",
        "[",
        "~",
    )
    for _ in range(400):
        text = "".join(rng.choices(parts, k=rng.randint(1, 9)))
        if text.startswith("%2F"):
            continue  # with a question mark and a colon behind it, Hadoop decodes it
        try:
            path = jvm.org.apache.hadoop.fs.Path(text)
        except IllegalArgumentException:
            expected = None
        else:
            uri = path.toUri()
            is_local = str(uri.getScheme() or "file").lower() == "file" and uri.getAuthority() is None
            expected = normpath(uri.getPath()) if is_local and path.isAbsolute() else None
        plain = plain_location(text)
        assert (plain if plain is not None and plain.startswith("/") else None) == expected, text

"""Which directory of this host Spark uses for a location: a checkpoint, an input or an output."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession


def directory_of(session: SparkSession, location: str) -> Path | None:
    """The file or directory that Spark uses for ``location``; None if it is none of this host. It may be a link.

    Hadoop says it, whose rules are not those of addresses nor of this system: nothing in a location is decoded, and
    ``..`` goes by the text, even behind a link. What Hadoop does not take is an error here as it is for Spark.
    """
    jvm: Any = session._jvm
    conf = session._jsparkSession.sessionState().newHadoopConf()
    path = jvm.org.apache.hadoop.fs.Path(location)
    scheme = path.toUri().getScheme() or jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri(conf).getScheme()
    # No other file system is opened to be told so.
    if str(scheme).lower() != "file":
        return None
    return Path(path.getFileSystem(conf).makeQualified(path).toUri().getPath())


def path_of_uri(uri: str) -> Path | None:
    """The file that Spark names in a log of its own, where names are encoded as in addresses; None if it is none of
    this host."""
    place = urlsplit(uri)
    return Path(unquote(place.path)) if place.scheme == "file" else None

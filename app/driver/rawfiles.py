"""Files of this host that Spark writes without Hadoop's checksum files."""

from __future__ import annotations

from typing import Final

WRITE_OPTIONS: Final = {
    # Hadoop makes a child process (chmod, 5 ms) for each file that it writes, and one for the checksum file beside it.
    # Only for this write: Hadoop's own code takes whatever serves file: everywhere else for a LocalFileSystem.
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
    # What is whole is said by somebody else: the sink's commit, or the manifest of a result.
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
"""Options of Spark for a write into a directory of this host, which is nobody's before it is committed."""

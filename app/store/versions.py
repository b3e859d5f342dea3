"""Versions of jobs in the database. They are rare, so each is written by separate statements."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from sqlalchemy.engine import Connection

from app.store import codec
from app.store.statements import execute
from app.store.writes import AddArtifact, AddVersion, SetVersion

VersionWrite = AddVersion | SetVersion | AddArtifact

# What is in force now may be the first version, which is in `jobs` only.
_KEEP_CURRENT = (
    "INSERT INTO job_versions (job_id, version, document, options) SELECT job_id, CAST(? AS BIGINT), document, options "
    "FROM jobs WHERE job_id = ? ON CONFLICT (job_id, version) DO NOTHING"
)
_FORGET = (
    "DELETE FROM job_versions WHERE job_id = ? AND version <> ?",
    "DELETE FROM artifacts WHERE job_id = ? AND version <> ?",
)
_ADD = "INSERT INTO job_versions (job_id, version, document, options) VALUES (?, ?, ?, ?)"
_SET = (
    "UPDATE jobs SET document = v.document, options = v.options FROM job_versions AS v "
    "WHERE jobs.job_id = ? AND v.job_id = jobs.job_id AND v.version = ?"
)
_ADD_ARTIFACT = "INSERT INTO artifacts (job_id, version, name, sha256, content) VALUES (?, ?, ?, ?, ?)"


def write_versions(connection: Connection, writes: Sequence[tuple[str, VersionWrite]]) -> None:
    """Write what is about versions, in order."""
    placeholder = "?" if connection.dialect.name == "sqlite" else "%s"

    def run(text: str, *parameters: object) -> None:
        execute(connection, text.replace("?", placeholder), parameters)

    for job_id, write in writes:
        match write:
            case AddVersion(number, current, document, options):
                run(_KEEP_CURRENT, current, job_id)
                for text in _FORGET:
                    run(text, job_id, current)
                run(_ADD, job_id, number, document, codec.OPTIONS.dump(options))
            case SetVersion(number):
                run(_SET, job_id, number)
            case AddArtifact(name, content, version):
                digest = hashlib.sha256(content).hexdigest()
                run(_ADD_ARTIFACT, job_id, version, name, digest, content)

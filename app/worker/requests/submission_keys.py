"""The Idempotency-Key of a submission: a repeated submission is answered as the first one was, and submits nothing.

A key belongs to its author. It is stored in the transaction of its job and kept as long as the job, so that it counts
after a restart too, and at all servers that share the jobs.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from weakref import WeakValueDictionary

from app.store.errors import KeyUsed
from app.store.store import Store
from app.store.writes import AddSubmissionKey
from app.worker.job.mailbox import IdempotencyKey
from app.worker.refusals import InDoubt, StateConflict, Unavailable
from app.worker.retrying import reading


async def key_of(
    author: str, key: str | None, document: object, files: Mapping[str, bytes]
) -> AddSubmissionKey | None:
    """What makes a submission known again; None if it has no key. ``document``: as it was sent."""
    if key is None:
        return None
    return AddSubmissionKey(author, key, *await asyncio.to_thread(_hashes, document, files))


async def key_of_version(
    key: str | None, document: object, files: Mapping[str, bytes]
) -> IdempotencyKey | None:
    """What makes a new version of a job known again, among the requests of the job; None if it has no key."""
    if key is None:
        return None
    return IdempotencyKey(key, _hash_of(["graph", *await asyncio.to_thread(_hashes, document, files)]))


def _hashes(document: object, files: Mapping[str, bytes]) -> tuple[str, str]:
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    return _hash_of(document), _hash_of(digests)


def _hash_of(content: object) -> str:
    """Of what was decoded from JSON or YAML. Neither the form of the text counts nor the order of its fields, nor which
    defaults this version adds."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class SubmissionKeys:
    """Which job was submitted with which key."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turns: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def once(self, key: AddSubmissionKey | None, submit: Callable[[], Awaitable[str]]) -> str:
        """The id of the job that ``submit`` stores with ``key``, or that was submitted with it before: then ``submit``
        is not called. Whoever comes meanwhile waits.

        Raises:
            StateConflict: the key was used with other content.
        """
        if key is None:
            return await submit()
        async with self._turns.setdefault((key.author, key.key), asyncio.Lock()):
            known = await self._first(key)
            if known is not None:
                return known
            try:
                return await submit()
            except KeyUsed as error:
                # Another server was faster.
                known = await self._first(key)
                if known is None:
                    raise Unavailable("The job was submitted and forgotten meanwhile; try again.") from error
                return known
            except InDoubt as error:
                again = "Or repeat the request with its Idempotency-Key: that does not submit the job twice."
                raise Unavailable(*error.errors, again) from error

    async def _first(self, key: AddSubmissionKey) -> str | None:
        """The job that was submitted with ``key``; None if there is none."""
        found = await reading(self._store.submission(key.author, key.key))
        if found is None:
            return None
        job_id, document_hash, files_hash = found
        other = ["document"] * (document_hash != key.document_hash) + ["files"] * (
            files_hash != key.files_hash
        )
        if other:
            raise StateConflict(
                f"Idempotency-Key {key.key!r} was used before for another submission, that of job {job_id}: the "
                f"{' and the '.join(other)} of this one differ{'s' * (other == ['document'])}. Use a new key."
            )
        return job_id

"""What a source cannot do, in one sentence with its place. It crosses from Spark's Python workers as text."""

from __future__ import annotations


class SourceError(Exception):
    """A source of ours cannot go on. A retry would meet it again."""

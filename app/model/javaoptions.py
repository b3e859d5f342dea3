"""Options for a JVM as people write them: one text, split as a shell splits it."""

from __future__ import annotations

import shlex
from typing import Final

JAVA_OPTION_SETTINGS: Final = ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions")
"""Settings of a job whose value is such a text."""


def split_java_options(text: str) -> tuple[str, ...]:
    """The options in ``text``.

    Raises:
        ValueError: a quotation mark is not closed, or a backslash ends the text.
    """
    return tuple(shlex.split(text))


def java_options_fault(text: str) -> str | None:
    """What is wrong with ``text``, to follow the name of the field; None if it can be split."""
    try:
        split_java_options(text)
    except ValueError as error:
        reason = "a quotation mark is not closed" if "quotation" in str(error) else "it ends with a backslash"
        return f"should be JVM options separated by blanks, quoted as in a shell: {reason}."
    return None

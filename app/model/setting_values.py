"""Type checks of setting values: a TOML file has types, an environment has only texts."""

from __future__ import annotations

import json
import math
import re
from typing import Final, Literal, get_args, get_origin

_WHOLE: Final = re.compile(r"-?[0-9]{1,18}\Z")
_DECIMAL: Final = re.compile(r"-?[0-9]{1,18}([.][0-9]{1,18})?\Z")
TRUE: Final = ("true", "yes", "on", "1")
FALSE: Final = ("false", "no", "off", "0")


def kind_of(annotation: object) -> type:
    """What a setting is made of: an optional one of what it is if it is given, a path or a choice of text."""
    kinds = (annotation, *get_args(annotation))
    return next((kind for kind in (bool, int, float) if kind in kinds), str)


def without_blanks(annotation: object, value: object) -> object:
    """``value`` without blanks at its ends, where none can be meant: in a number or a choice, not in a path."""
    choices = (get_origin(each) is Literal for each in (annotation, *get_args(annotation)))
    if not isinstance(value, str) or (kind_of(annotation) is str and not any(choices)):
        return value
    return value.strip() or value


def fault_of(kind: type, value: object, *, as_text: bool) -> str | None:
    """What is wrong with a value of a setting of ``kind`` (bool, int, float or str), in words that follow the name.

    ``as_text``: it comes from where there are texts only. Then ``100`` may be a number, and ``true`` a boolean.
    """
    if kind is bool:
        fits = isinstance(value, bool) or (as_text and str(value).lower() in (*TRUE, *FALSE))
        return None if fits else f"should be true or false{_found(value)}"
    if kind is int:
        fits = type(value) is int or (as_text and _WHOLE.match(str(value)) is not None)
        return None if fits else f"should be a whole number{_found(value)}"
    if kind is float:
        fits = type(value) in (int, float) and math.isfinite(float(str(value)))
        fits = fits or (as_text and _DECIMAL.match(str(value)) is not None)
        return None if fits else f"should be a number{_found(value)}"
    if not isinstance(value, str):
        return f"should be a text in quotes{_found(value)}"
    if not value.strip():
        return "should not be empty: leave it out for the default."
    return "should not contain a null character." if "\0" in value else None


def _found(value: object) -> str:
    """As a file has it."""
    text = json.dumps(value, default=str) if isinstance(value, bool | float) else repr(value)
    return f" (found {text})."

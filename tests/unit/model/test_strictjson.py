"""Strict JSON: what is refused, where the decoder knows it, and that everything else is read as it was written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.model.strictjson import MAX_COLLECTIONS, MAX_DEPTH, StrictTextError, decode_json_strict


def refusal(data: bytes | str) -> StrictTextError:
    with pytest.raises(StrictTextError) as caught:
        decode_json_strict(data if isinstance(data, bytes) else data.encode())
    assert caught.value.errors == [str(caught.value)]
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("text", "line", "column", "part"),
    [
        ('{"a": 1} x', 1, 10, "extra data"),
        ("{} {}", 1, 4, "extra data"),
        ("\ufeff{}", 1, 1, "byte order mark"),
        ("", 1, 1, "expecting value"),
        ("{", 1, 2, "expecting property name enclosed in double quotes"),
        ("{'a': 1}", 1, 2, "expecting property name enclosed in double quotes"),
        ('{"a" 1}', 1, 6, "expecting ':' delimiter"),
        ('{"a": 1,\n 2}', 2, 2, "expecting property name"),
        ("[1 2]", 1, 4, "expecting ',' delimiter"),
        ("[1", 1, 3, "expecting ',' delimiter"),
        ("True", 1, 1, "expecting value"),
        ("[01]", 1, 3, "expecting ',' delimiter"),
        ("[1.]", 1, 3, "expecting ',' delimiter"),
        ("[.5]", 1, 2, "expecting value"),
        ("[-]", 1, 2, "expecting value"),
        ("[+1]", 1, 2, "expecting value"),
        ("[0x10]", 1, 3, "expecting ',' delimiter"),
        ('"abc', 1, 1, "unterminated string"),
        ('"a\nb"', 1, 3, "invalid control character"),
        ('"a\0b"', 1, 3, "invalid control character"),
        ("[1, // no comments\n2]", 1, 5, "expecting value"),
    ],
)
def test_is_refused_with_its_place(text: str, line: int, column: int, part: str) -> None:
    assert str(refusal(text)).startswith(f"The JSON is not valid in line {line}, column {column}: ")
    assert part in str(refusal(text))


# The decoder of Python 3.13 names another place than that of 3.11 for some of them.
@pytest.mark.parametrize("text", ['{"a": 1,}', "[1,]", '"\\x41"', '"\\u12"', "  \n "])
def test_is_refused_with_a_place(text: str) -> None:
    assert "The JSON is not valid in line " in str(refusal(text))


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('{"a": 1, "a": 2}', "the name 'a' is written twice"),
        ('{"a": {"b": 1,\n  "b": 2}}', "the name 'b' is written twice"),
        ('{"a": 1, "\\u0061": 2}', "the name 'a' is written twice"),
        ("[NaN]", "NaN is not a JSON number"),
        ("[Infinity]", "Infinity is not a JSON number"),
        ("[-Infinity]", "-Infinity is not a JSON number"),
        ("[1e400]", "too large for a double"),
        ("[-1e400]", "too large for a double"),
        ("9223372036854775808", "64 bits"),
        ("-9223372036854775809", "64 bits"),
        ("1" * 5000, "64 bits"),
        ('["\\ud800"]', "half a surrogate pair"),
        ('["\\udc00\\ud800"]', "half a surrogate pair"),
        ('{"\\ud800x": 1}', "half a surrogate pair"),
        ('{"\\ud83d": "\\ude00"}', "half a surrogate pair"),
    ],
)
def test_what_the_decoder_would_accept_is_refused(text: str, part: str) -> None:
    assert str(refusal(text)).startswith("The JSON is not valid: ")
    assert part in str(refusal(text))


def test_text_that_is_not_utf8_is_refused_at_the_first_wrong_byte() -> None:
    error = refusal(b'{\n "\xc3\xa4\xff": 1}')
    assert "in line 2, column 4: the text is not UTF-8" in str(error)
    assert "UTF-8" in str(refusal('{"a": 1}'.encode("utf-16")))
    assert "byte order mark" in str(refusal(b"\xef\xbb\xbf{}"))


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
def test_depth_is_bounded_however_deep(opening: str) -> None:
    assert "nested too deeply: at most 64 levels" in str(refusal(opening * 5000))
    assert "too many objects and arrays" in str(refusal(opening * 100_000))


def test_the_deepest_allowed_value_is_read() -> None:
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert decode_json_strict(text.encode()) == json.loads(text)
    assert "nested too deeply" in str(refusal(f"[{text}]"))


def test_brackets_in_strings_and_side_by_side_do_not_count_as_depth() -> None:
    assert decode_json_strict(json.dumps("[" * 1000).encode()) == "[" * 1000
    assert decode_json_strict(json.dumps([[]] * 1000).encode()) == [[]] * 1000
    assert decode_json_strict(json.dumps([{"a": []}] * 1000).encode()) == [{"a": []}] * 1000


@pytest.mark.parametrize(
    "text",
    [
        "9223372036854775807",
        "-9223372036854775808",
        "-0",
        "1e300",
        "1E+2",
        "0.10",
        '"\\ud83d\\ude00 \\/ \\n"',
        " [ ] ",
    ],
)
def test_unusual_but_legal(text: str) -> None:
    assert decode_json_strict(text.encode()) == json.loads(text)


def test_whole_numbers_and_others_stay_different() -> None:
    assert [type(value) for value in decode_json_strict(b"[1, 1.0, true]")] == [int, float, bool]


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(_values, st.booleans(), st.sampled_from([None, 2]))
def test_every_json_value_is_read_as_it_was_written(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert decode_json_strict(text.encode()) == value


@given(st.text(st.sampled_from('{}[]",:0123456789.eE+-\\u ntrufalsNI\n')))
def test_it_accepts_no_more_than_the_standard_library(text: str) -> None:
    try:
        value = decode_json_strict(text.encode())
    except StrictTextError:
        return
    assert json.loads(text) == value


def test_the_number_of_objects_and_arrays_is_bounded() -> None:
    fits = "[" + "[]," * (MAX_COLLECTIONS - 2) + "[]]"
    assert len(decode_json_strict(fits.encode())) == MAX_COLLECTIONS - 1
    assert f"at most {MAX_COLLECTIONS} are allowed" in str(refusal(f"[{fits}]"))


@pytest.mark.parametrize("text", ["[" * (2 * MAX_COLLECTIONS), '\\"[{' * MAX_COLLECTIONS])
def test_brackets_in_a_string_are_none(text: str) -> None:
    assert decode_json_strict(json.dumps([text]).encode()) == [text]


def test_brackets_behind_a_string_without_an_end_are_none() -> None:
    assert "unterminated string" in str(refusal('["' + '\\"[' * (10 * MAX_COLLECTIONS)))

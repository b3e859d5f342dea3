"""Strict JSON: what is refused, where, and that everything else is read as the standard library reads it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.model import strictjson
from app.model.strictjson import MAX_COLLECTIONS, MAX_DEPTH, StrictJsonError, decode_json_strict


def refusal(data: bytes | str) -> StrictJsonError:
    with pytest.raises(StrictJsonError) as caught:
        decode_json_strict(data)
    assert caught.value.errors == [str(caught.value)]
    return caught.value


@pytest.mark.parametrize(
    ("text", "line", "column", "part"),
    [
        ('{"a": 1, "a": 2}', 1, 10, "'a' is written twice"),
        ('{"a": {"b": 1,\n  "b": 2}}', 2, 3, "'b' is written twice"),
        ('{"a": 1, "\\u0061": 2}', 1, 10, "'a' is written twice"),
        ("[NaN]", 1, 2, "NaN is not a JSON number"),
        ("[Infinity]", 1, 2, "Infinity is not a JSON number"),
        ("[-Infinity]", 1, 2, "-Infinity is not a JSON number"),
        ("[1e400]", 1, 2, "too large for a double"),
        ("[-1e400]", 1, 2, "too large for a double"),
        ("9223372036854775808", 1, 1, "64 bits"),
        ("-9223372036854775809", 1, 1, "64 bits"),
        ("1" * 5000, 1, 1, "64 bits"),
        ('{"a": 1} x', 1, 10, "nothing may follow the value, found 'x'"),
        ("{} {}", 1, 4, "nothing may follow the value, found '{'"),
        ("\ufeff{}", 1, 1, "byte order mark"),
        ("", 1, 1, "empty"),
        ("  \n ", 2, 2, "empty"),
        ("{", 1, 2, "a name in double quotes is expected, found the end of the text"),
        ("{'a': 1}", 1, 2, "a name in double quotes"),
        ('{"a" 1}', 1, 6, "':' is expected"),
        ('{"a": 1,}', 1, 9, "a name in double quotes is expected, found '}'"),
        ("[1,]", 1, 4, "a value is expected, found ']'"),
        ("[1 2]", 1, 4, "',' or ']' is expected, found '2'"),
        ("[1", 1, 3, "',' or ']' is expected"),
        ("True", 1, 1, "a value is expected, found 'True'"),
        ("[01]", 1, 2, "'01' is not a JSON number"),
        ("[1.]", 1, 2, "'1.' is not a JSON number"),
        ("[.5]", 1, 2, "a value is expected"),
        ("[-]", 1, 2, "'-' is not a JSON number"),
        ("[+1]", 1, 2, "a value is expected"),
        ("[0x10]", 1, 2, "'0x10' is not a JSON number"),
        ('"abc', 1, 1, "does not end"),
        ('"a\nb"', 1, 3, "write it as an escape"),
        ('"\\x41"', 1, 2, "a backslash must be followed"),
        ('"\\u12"', 1, 2, "a backslash must be followed"),
        ('["\\ud800"]', 1, 2, "half a surrogate pair"),
        ('["\\udc00\\ud800"]', 1, 2, "half a surrogate pair"),
        ('{"\\ud800x": 1}', 1, 2, "half a surrogate pair"),
        ("[1, // no comments\n2]", 1, 5, "a value is expected"),
    ],
)
def test_is_refused_with_its_place(text: str, line: int, column: int, part: str) -> None:
    error = refusal(text)
    assert (error.line, error.column) == (line, column)
    assert part in str(error)
    assert str(error).startswith(f"The JSON is not valid in line {line}, column {column}: ")
    assert str(error).endswith(".") and "\n" not in str(error)


def test_text_that_is_not_utf8_is_refused_at_the_first_wrong_byte() -> None:
    error = refusal(b'{\n "\xc3\xa4\xff": 1}')
    assert (error.line, error.column) == (2, 4)
    assert "not UTF-8" in str(error)
    assert "UTF-8" in str(refusal('{"a": 1}'.encode("utf-16")))
    assert "byte order mark" in str(refusal(b"\xef\xbb\xbf{}"))


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
def test_depth_is_bounded_however_deep(opening: str) -> None:
    error = refusal(opening * 100_000)
    assert "nested too deeply: at most 64 levels" in str(error)


def test_the_deepest_allowed_value_is_read() -> None:
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert decode_json_strict(text) == json.loads(text)
    assert "nested too deeply" in str(refusal(f"[{text}]"))


def test_brackets_in_strings_and_side_by_side_do_not_count_as_depth() -> None:
    assert decode_json_strict(json.dumps("[" * 1000)) == "[" * 1000
    assert decode_json_strict(json.dumps([[]] * 1000)) == [[]] * 1000
    assert decode_json_strict(json.dumps([{"a": []}] * 1000)) == [{"a": []}] * 1000


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
    assert decode_json_strict(text) == json.loads(text)
    assert decode_json_strict(text.encode()) == json.loads(text)


def test_whole_numbers_and_others_stay_different() -> None:
    assert [type(value) for value in decode_json_strict("[1, 1.0, true]")] == [int, float, bool]


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
    assert decode_json_strict(text) == value
    assert decode_json_strict(text.encode()) == value


@given(_values, st.data())
def test_the_fault_finder_agrees_with_the_decoder(value: Any, data: st.DataObject) -> None:
    # The escapes of a pair make the fault finder read a text that has no fault.
    text = json.dumps([value, "\U0001f600"])
    assert decode_json_strict(text) == [value, "\U0001f600"]
    cut = data.draw(st.integers(0, len(text) - 1))
    refusal(text[:cut])


@given(st.text(st.sampled_from('{}[]",:0123456789.eE+-\\u ntrufalsNI\n')))
def test_it_accepts_no_more_than_the_standard_library(text: str) -> None:
    try:
        value = decode_json_strict(text)
    except StrictJsonError:
        return
    assert json.loads(text) == value


def test_the_number_of_objects_and_arrays_is_bounded() -> None:
    fits = "[" + "[]," * (MAX_COLLECTIONS - 2) + "[]]"
    assert len(decode_json_strict(fits)) == MAX_COLLECTIONS - 1
    with pytest.raises(StrictJsonError, match=f"at most {MAX_COLLECTIONS} are allowed"):
        decode_json_strict("[" + fits + "]")


@pytest.mark.parametrize("text", ["[" * (2 * MAX_COLLECTIONS), '\\"[{' * MAX_COLLECTIONS])
def test_brackets_in_a_string_are_none_and_cost_no_second_reading(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strictjson, "_FaultFinder", None)
    assert decode_json_strict(json.dumps([text])) == [text]


def test_brackets_behind_a_string_without_an_end_are_refused_once() -> None:
    assert "does not end" in str(refusal('["' + '\\"[' * (10 * MAX_COLLECTIONS)))

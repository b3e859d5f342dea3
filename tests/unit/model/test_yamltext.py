"""Strict YAML: what is refused, where, and what is read."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from app.api.yamltext import MAX_ALIASES, decode_yaml_strict
from app.model.strictjson import StrictTextError


def read(text: str) -> Any:
    return decode_yaml_strict(text.encode())


def refusal(data: bytes | str) -> StrictTextError:
    with pytest.raises(StrictTextError) as caught:
        decode_yaml_strict(data if isinstance(data, bytes) else data.encode())
    assert caught.value.errors == [str(caught.value)]
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("text", "line", "column", "part"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, 1, "'a' is written twice"),
        ("x:\n  {a: 1, 'a': 2}", 2, 10, "'a' is written twice"),
        ("name: no", 1, 7, "'no' without quotes is a boolean to some readers"),
        ("a: [Yes]", 1, 5, "write true or false, or put it in quotes"),
        ("a: ON", 1, 4, "'ON' without quotes"),
        ("on: 1", 1, 1, "'on' without quotes"),
        ("a: !!python/object:os.system {}", 1, 4, "tags such as"),
        ("a: !!timestamp 2013-01-01", 1, 4, "tags such as"),
        ("a: !!set {b}", 1, 4, "tags such as"),
        ("a: &x {b: 1}\nc:\n  <<: *x", 3, 3, "merge keys"),
        ("a: 1\n---\nb: 2", 2, 1, "exactly one document"),
        ("a: *x", 1, 4, "no anchor before it"),
        ("password: !hunter2", 1, 11, "a text that begins with ! belongs in quotes"),
        ("password: *hunter2", 1, 11, "a text that begins with * belongs in quotes"),
        ("a: &x [*x]", 1, 4, "nested too deeply"),
        ("a: &x [1]\nb: &x [2]", 2, 4, "found duplicate anchor"),
        ("a: ! 2", 1, 4, "tags such as"),
        ("a: !!str [b]", 1, 4, "tags such as"),
        ("a: !plain yes", 1, 4, "tags such as"),
        ("? [a]\n: 1", 1, 3, "a key should be a text, not a list or a mapping"),
        ("1: a", 1, 1, "put '1' in quotes"),
        ("null: a", 1, 1, "put 'null' in quotes"),
        ("true: a", 1, 1, "put 'true' in quotes"),
        ("a: 9223372036854775808", 1, 4, "64 bits"),
        ("a: " + "9" * 5000, 1, 4, "64 bits"),
        ("a: 1e400", 1, 4, "too large for a double"),
        ("a: .inf", 1, 4, ".inf is not a number that is allowed"),
        ("a: .nan", 1, 4, ".nan is not a number that is allowed"),
        ("a: [1", 2, 1, "did not find expected"),
        ("a: b: c", 1, 5, "mapping values are not allowed"),
        ("a:\n\t- b", 2, 1, "cannot start any token"),
        ("\ufeffa: 1", 1, 1, "byte order mark"),
        (b"a: \xed\xa0\x80", 1, 4, "not UTF-8"),  # half a surrogate pair
    ],
)
def test_is_refused_with_its_place(text: str | bytes, line: int, column: int, part: str) -> None:
    error = refusal(text)
    assert part in str(error)
    assert str(error).startswith(f"The YAML is not valid in line {line}, column {column}: ")


def test_text_that_is_not_utf8_is_refused_at_the_first_wrong_byte() -> None:
    error = refusal(b"a: 1\nb: \xff")
    assert "in line 2, column 4: the text is not UTF-8" in str(error)


def test_control_characters_are_refused() -> None:
    assert "line 2" in str(refusal("a: \xe4\xe4\nb: \x01\n\n\n"))


def test_what_other_readers_guess_at_stays_text() -> None:
    text = "{date: 2013-01-01, time: 12:30:00, old: 010, hex: 0x1F, under: 1_000, version: 1.2.3, y: y, n: n}"
    assert read(text) == {
        "date": "2013-01-01",
        "time": "12:30:00",
        "old": "010",
        "hex": "0x1F",
        "under": "1_000",
        "version": "1.2.3",
        "y": "y",
        "n": "n",
    }


def test_scalars() -> None:
    text = "[1, -2, +3, 1.5, 1e3, true, FALSE, ~, null, , 'yes', \"1\", !!str 1, |-\n  no\n ]"
    expected = [1, -2, 3, 1.5, 1000.0, True, False, None, None, "yes", "1", "1"]
    assert read(text.replace(" , '", " '").replace(", |-\n  no\n ", "")) == expected
    assert read("a: |-\n  no\nb: >-\n  x\n  y\nc:") == {"a": "no", "b": "x y", "c": None}


def test_an_alias_gives_a_value_of_its_own() -> None:
    value = read("a: &x {k: [1]}\nb: *x\nc: &s text\nd: *s")
    assert value == {"a": {"k": [1]}, "b": {"k": [1]}, "c": "text", "d": "text"}
    value["a"]["k"].append(2)
    assert value["b"] == {"k": [1]}
    assert read("&x a: &y b\nc: *x\n*y : d") == {"a": "b", "c": "a", "b": "d"}


def test_alias_bombs_are_refused() -> None:
    many = "a: &x 1\nb: [" + ", ".join(["*x"] * (MAX_ALIASES + 1)) + "]"
    assert "too many aliases: at most 100" in str(refusal(many))
    levels = ["l0: &l0 [" + ", ".join(["x"] * 50) + "]"]
    levels += [f"l{n}: &l{n} [" + ", ".join([f"*l{n - 1}"] * 12) + "]" for n in range(1, 9)]
    assert "too many values" in str(refusal("\n".join(levels)))
    chain = ["l0: &l0 1"] + [f"l{n}: &l{n} {'[' * 9}*l{n - 1}{']' * 9}" for n in range(1, 99)]
    assert "nested too deeply" in str(refusal("\n".join(chain)))


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_depth_is_bounded_however_deep(opening: str) -> None:
    assert "nested too deeply: at most 64 levels" in str(refusal(opening * 2000))
    refusal(opening * 200_000)


def test_an_empty_text_is_nothing() -> None:
    assert read("# nothing") is None


# 1e5 is a number in JSON and in YAML 1.2, but a text to the writer, which knows YAML 1.1 and puts no quotes around it.
_EXPONENT = re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+")
_texts = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"), exclude_characters="\ufeff\ufffe\uffff")
).filter(lambda text: not _EXPONENT.fullmatch(text))
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | _texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_texts, inner, max_size=4),
    max_leaves=20,
)


@given(_values)
def test_what_a_yaml_writer_writes_is_read_back(value: Any) -> None:
    # The writer puts everything in quotes that YAML 1.1 would take for something else.
    quoted = yaml.safe_dump(value, allow_unicode=True, default_style='"' if isinstance(value, str) else None)
    quoted = quoted.removesuffix("...\n")
    assert read(quoted.replace("\x85", "\\N")) == value


@given(_values)
def test_json_is_yaml(value: Any) -> None:
    # YAML has no escapes for surrogate pairs, hence no ASCII.
    assert read(json.dumps(value, ensure_ascii=False)) == value


@given(st.text(st.sampled_from("ab12.:-[]{},&*!|>'\"#?~ \n\t%@`")))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        value = read(text)
    except StrictTextError:
        return
    json.dumps(value, allow_nan=False)

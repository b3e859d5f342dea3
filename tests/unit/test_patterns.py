"""No regular expression of the project takes long, whatever the text is.

All calls of `re` are found in the source, and each is run, as it is used, on long texts that are made of the pieces of
its own pattern: a new one cannot be missed. One that is put together while the program runs has to be named in `MADE`.
"""

from __future__ import annotations

import ast
import functools
import importlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from app.model.secret_texts import _pattern_of
from tests.unit.growth import too_slow

APP = Path(__file__).parents[2] / "app"
LENGTH = 100_000
LIMIT_S = 0.05
METHODS = ("search", "match", "fullmatch", "sub", "subn", "findall", "finditer", "split")

MADE = {
    ("app.model.secret_texts", "_pattern_of"): (_pattern_of("aaaaab"), _pattern_of("a-a-a-b")),
}
"""By module and function: examples of what is put together there."""


class Use(NamedTuple):
    """A pattern, where it is, and how it is used."""

    place: str
    pattern: re.Pattern[Any]
    methods: tuple[str, ...]


@functools.cache
def trees() -> dict[str, ast.Module]:
    return {
        ".".join(("app", *path.relative_to(APP).with_suffix("").parts)): ast.parse(path.read_text())
        for path in sorted(APP.rglob("*.py"))
        if path.name != "__main__.py"
    }


def is_of_re(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and node.func.attr in ("compile", *METHODS)
    )


@functools.cache
def attributes_used(*modules: str) -> dict[str, set[str]]:
    """The methods of patterns that are used of each name."""
    found: dict[str, set[str]] = {}
    for module in modules or trees():
        for node in ast.walk(trees()[module]):
            if isinstance(node, ast.Attribute) and node.attr in METHODS:
                owner = node.value
                name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
                found.setdefault(name, set()).add(node.attr)
    return found


def methods_of(module: str, variable: str) -> tuple[str, ...]:
    """How a pattern is used in its module; if it is not used there, in any. Private names are those of a module."""
    used = attributes_used(module).get(variable) or attributes_used().get(variable) or set(METHODS[:3])
    return tuple(sorted(used))


def names_of(tree: ast.Module) -> dict[ast.AST, str]:
    """What each call that compiles is assigned to: a variable, or the field of a value."""
    found: dict[ast.AST, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.value] = node.targets[0].id
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and isinstance(node.target, ast.Name):
            if node.value is not None:
                found[node.value] = node.target.id
        elif isinstance(node, ast.keyword) and node.arg:
            found[node.value] = node.arg
    return found


def uses() -> Iterator[Use]:
    for name, tree in trees().items():
        names = names_of(tree)
        functions = [
            node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        for call in ast.walk(tree):
            if not is_of_re(call):
                continue
            assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
            place = f"{name}:{call.lineno}"
            around = [each.name for each in functions if call in ast.walk(each)]
            module = importlib.import_module(name)
            flags = [word.value for word in call.keywords if word.arg == "flags"]
            if call.func.attr == "compile":
                flags = [*call.args[1:], *flags]
            try:
                pattern, *values = [
                    eval(compile(ast.Expression(each), name, "eval"), vars(module))
                    for each in (call.args[0], *flags[:1])
                ]
                made = (re.compile(pattern, *[each for each in values if isinstance(each, re.RegexFlag)]),)
            except NameError:
                made = MADE[name, around[-1]]
            methods = (call.func.attr,)
            if call.func.attr == "compile":
                methods = METHODS[:3] if around else methods_of(name, names.get(call, ""))
            for each in made:
                yield Use(place, each, methods)


# ---- texts that are made of a pattern's own pieces

EXAMPLES = {
    "CATEGORY_DIGIT": "7",
    "CATEGORY_SPACE": " ",
    "CATEGORY_WORD": "a",
    "CATEGORY_NOT_DIGIT": "a",
    "CATEGORY_NOT_SPACE": "a",
    "CATEGORY_NOT_WORD": "-",
}
OTHERS = "a7 -=\"'\\/:@.{\n"
MOST_PIECES = 6
"""Of signs and of beginnings of a pattern that are tried with each other."""


def signs_of(members: list[Any]) -> list[str]:
    """Examples of a set of signs."""
    found: list[str] = []
    for kind, value in members:
        match str(kind):
            case "LITERAL":
                found.append(chr(value))
            case "RANGE":
                found.append(chr(value[0]))
            case "CATEGORY":
                found.append(EXAMPLES[str(value)])
    if members and str(members[0][0]) == "NEGATE":
        return [sign for sign in OTHERS if sign not in found][:3]
    return found


def beginnings(parsed: Any, before: str, signs: dict[str, None], starts: dict[str, None]) -> str:
    """One text that ``parsed`` may match, behind ``before``. Notes the signs of it, and how far each piece goes."""
    text = before
    for kind, value in parsed:
        match str(kind):
            case "LITERAL":
                signs[chr(value)] = None
                text += chr(value)
            case "NOT_LITERAL":
                text += next(sign for sign in OTHERS if sign != chr(value))
            case "ANY":
                text += "a"
            case "IN":
                examples = signs_of(value)
                signs |= dict.fromkeys(examples)
                for other in examples[1:]:
                    starts[text + other] = None
                text += examples[0]
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                lowest, highest, inner = value
                once = beginnings(inner, text, signs, starts)[len(text) :]
                starts[text + 2 * once] = None
                text += once * (min(lowest, 20) or min(highest, 1))
            case "SUBPATTERN":
                text = beginnings(value[3], text, signs, starts)
            case "ATOMIC_GROUP":
                text = beginnings(value, text, signs, starts)
            case "BRANCH":
                texts = [beginnings(branch, text, signs, starts) for branch in value[1]]
                text = texts[0]
            case "ASSERT":
                beginnings(value[1], text, signs, starts)
        starts[text] = None
    return text


class Text(NamedTuple):
    """``first``, then ``again`` and again, then ``last``."""

    first: str
    again: str
    last: str

    def of(self, pattern: re.Pattern[Any], length: int) -> Any:
        text = f"{self.first}{(self.again * (length // len(self.again) + 1))[:length]}{self.last}"
        return text if isinstance(pattern.pattern, str) else text.encode("latin-1", "replace")


def hostile(pattern: re.Pattern[Any]) -> list[Text]:
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    signs: dict[str, None] = {}
    starts: dict[str, None] = {}
    parser: Any = re._parser  # type: ignore[attr-defined]
    beginnings(parser.parse(source, pattern.flags & ~re.UNICODE), "", signs, starts)
    alphabet = [*list(signs)[:MOST_PIECES], *(sign for sign in "a !" if sign not in signs)]
    pieces = [*list(starts)[:: len(starts) // MOST_PIECES + 1], *list(starts)[-2:]]
    again = [*alphabet, *(a + b for a in alphabet for b in alphabet), *filter(None, pieces)]
    again += [piece + sign for piece in pieces for sign in alphabet]
    texts = [Text("", each, "") for each in again]
    texts += [Text(piece, sign, end) for piece in pieces for sign in alphabet for end in ("", "\n!")]
    return list(dict.fromkeys(texts))


def seconds(pattern: re.Pattern[Any], method: str, text: Any) -> float:
    nothing: Any = b"" if isinstance(text, bytes) else ""
    arguments = (nothing, text) if method in ("sub", "subn") else (text,)
    call = getattr(pattern, method)
    began = time.thread_time()
    result = call(*arguments)
    if method == "finditer":
        for _ in result:
            pass
    return time.thread_time() - began


def slow_text(use: Use) -> str | None:
    """The text on which the pattern takes too long, or None. A tenth of the length tells which may be one: there, what
    grows with the square of the length takes a hundredth."""
    for text in hostile(use.pattern):
        for method in use.methods:
            took = min(seconds(use.pattern, method, text.of(use.pattern, LENGTH // 10)) for _ in range(2))
            if took > LIMIT_S:
                return f"{use.place}: {method} of {text} takes {took:.3f} s for a tenth of the length"
            if took > LIMIT_S / 100:

                def seconds_of(length: int, method: str = method, text: Text = text) -> float:
                    return seconds(use.pattern, method, text.of(use.pattern, length))

                if (wrong := too_slow(seconds_of, LENGTH, LIMIT_S)) is not None:
                    return f"{use.place}: {method} of {text} takes {wrong}"
    return None


@pytest.mark.parametrize("use", [pytest.param(use, id=use.place) for use in uses()])
def test_no_pattern_takes_long_on_a_hostile_text(use: Use) -> None:
    assert slow_text(use) is None


def test_a_machine_that_is_slow_is_no_fault_of_a_pattern() -> None:
    assert too_slow(lambda length: length * 1e-6, 100_000, 0.05) is None
    assert too_slow(lambda length: length * 3e-6, 100_000, 0.05) is not None, (
        "linear, and too slow all the same"
    )
    assert too_slow(lambda length: length**2 * 6e-12, 100_000, 0.05) is not None

"""A function of the user that is not there is named with its vertex, and so is what its module raises."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import pytest

from app.driver.failures import DriverError
from app.driver.vertices import Functions, apply_operation, guarded
from app.model.jobgraph import JobVertex, PythonSpec

VERTEX = JobVertex("0" * 32, "mapped", PythonSpec("mine:f"), (), 1, 1, 1, "default", "1" * 32)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def g(x): return x", "The module mine has no function f, which mine:f names"),
        ("f = 7", "What mine:f names is not a function but a int"),
        ("import nowhere_to_be_found", "cannot be imported: ModuleNotFoundError: .*nowhere_to_be_found"),
        ("raise SystemExit(3)", "cannot be imported: SystemExit: 3"),
    ],
)
def test_a_function_that_cannot_be_had_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    functions = Functions(tmp_path, ("mine.py",))
    functions.install()
    with pytest.raises(DriverError, match=said) as raised:
        guarded(VERTEX, lambda: apply_operation(cast(Any, None), VERTEX, {}, functions))
    assert raised.value.vertex == "mapped" and not raised.value.recoverable

"""A function of the user that is not there is named, and so is what its module raises."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from app.driver.failures import DriverError
from app.driver.functions import Functions


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
        functions("mine:f")
    assert not raised.value.recoverable

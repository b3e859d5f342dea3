from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.driver.harness import Bench, bench


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path) as made:
        yield made

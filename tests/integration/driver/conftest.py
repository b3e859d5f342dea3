from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.driver.harness import Bench, Driver, bench


@pytest.fixture
def rig(tmp_path: Path, class_data_archive: Path) -> Iterator[Bench]:
    Driver.environment["_SLOTWISE_DRIVER_ARCHIVE"] = str(class_data_archive)
    with bench(tmp_path) as made:
        yield made

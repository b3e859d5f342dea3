"""Where jobs keep their passwords, other users of the host have no business."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.cli import doctor
from app.cluster.java import Java
from app.cluster.standalone.daemons import ClusterError, DevCluster
from app.durablefiles import make_private
from app.settings import load_settings
from app.worker.housekeeping.directories import prepare

PAGES = Path(__file__).parents[2] / "docs"


@pytest.fixture(autouse=True)
def a_mask_that_lets_everyone_look() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(directory: Path, *names: str) -> list[int]:
    return [stat.S_IMODE((directory / name).stat().st_mode) for name in names]


def test_all_that_was_missing_is_for_one_user(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    make_private(tmp_path / "there" / "a" / "b")
    make_private(tmp_path / "there" / "a" / "b")
    assert modes(tmp_path, "there", "there/a", "there/a/b") == [0o755, 0o700, 0o700]
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "a"):
        with pytest.raises(OSError, match=r"File exists|Not a directory"):
            make_private(place)


def test_a_cluster_for_development_leaves_a_private_directory_for_the_server(tmp_path: Path) -> None:
    """It lies in the server's data directory, and may be started before it."""
    made = DevCluster(tmp_path / "slotwise" / "cluster", java=Java("/no/java", "17.0.1"))
    with pytest.raises(ClusterError, match="master could not be started"):
        made.up()
    assert modes(tmp_path, "slotwise", "slotwise/cluster", "slotwise/cluster/recovery") == [0o700] * 3


def test_a_data_directory_that_everyone_can_look_into_is_told(tmp_path: Path) -> None:
    place = tmp_path / "data"

    def told() -> tuple[list[Any], bool]:
        with capture_logs() as logs:
            prepare(load_settings(data_dir=place))
        check = doctor._data_dir(load_settings(data_dir=place))
        assert check.ok or f"chmod o-rwx {place}" in check.advice
        return [entry["advice"] for entry in logs], check.ok

    assert told() == ([], True)
    place.chmod(0o755)
    assert told() == ([f"chmod o-rwx {place}"], False)
    place.chmod(0o750)
    assert told() == ([], True)


def test_the_unit_of_the_page_closes_the_directory_that_systemd_makes() -> None:
    unit = (PAGES / "deploy.md").read_text(encoding="utf-8").partition("```ini")[2].partition("```")[0]
    assert re.search(r"^StateDirectory=", unit, re.MULTILINE)
    assert re.search(r"^StateDirectoryMode=0700$", unit, re.MULTILINE)

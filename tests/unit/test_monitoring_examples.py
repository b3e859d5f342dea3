"""The alerts and the dashboard in examples/: whole, and about metrics that docs/monitoring.md has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
DASHBOARD = json.loads((EXAMPLES / "grafana" / "slotwise.json").read_text())
ALERTS = yaml.safe_load((EXAMPLES / "prometheus" / "alerts.yml").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
HISTOGRAM_ENDINGS = ("_bucket", "_count", "_sum")


def documented() -> dict[str, str]:
    """Name to type."""
    page = (ROOT / "docs" / "monitoring.md").read_text()
    rows = re.findall(r"^\| `(slotwise_\w+)` \| (\w+) \|", page, re.MULTILINE)
    return dict(rows) | {name: "of the process" for name in re.findall(r"`(process_\w+)`", page)}


def expressions() -> Iterator[str]:
    for group in ALERTS["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    for panel in PANELS:
        yield from (target["expr"] for target in panel["targets"])
    yield from (each["expr"] for each in DASHBOARD["annotations"]["list"])
    yield from (each["definition"] for each in DASHBOARD["templating"]["list"] if "definition" in each)


def test_all_metrics_of_the_examples_are_documented() -> None:
    known = documented()
    found = set()
    for expression in expressions():
        names = re.findall(r"\b(?:slotwise|process)_\w+", expression)
        assert names, expression
        for name in names:
            base = next((name.removesuffix(end) for end in HISTOGRAM_ENDINGS if name.endswith(end)), name)
            assert known.get(base) == "histogram" or (base == name and name in known), name
            found.add(base)
    assert len(found) > 30


def test_counters_are_read_by_their_increase() -> None:
    for expression in expressions():
        for name in re.findall(r"\bslotwise_\w+(?:_total|_bucket)\b", expression):
            assert re.search(rf"(?:rate|increase|changes)\({name}(?:{{[^}}]*}})?\[", expression), expression


def test_panels_have_their_places_and_each_target_a_legend() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids) and len(PANELS) > 20
    taken = [
        (x, y)
        for place in (panel["gridPos"] for panel in DASHBOARD["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(taken)) == len(taken) and max(x for x, _ in taken) == 23
    assert all(target["legendFormat"] for panel in PANELS for target in panel["targets"])


def promtool(*arguments: str | Path) -> None:
    found = shutil.which("promtool") or shutil.which("promtool", path=str(ROOT / ".venv" / "bin"))
    if found is None:
        pytest.skip("promtool is not installed: make promtool")
    done = subprocess.run([found, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_takes_the_alerts_and_they_do_what_their_tests_say() -> None:
    directory = EXAMPLES / "prometheus"
    promtool("check", "rules", directory / "alerts.yml")
    promtool("test", "rules", directory / "alerts_test.yml")
    alerts = {rule["alert"] for group in ALERTS["groups"] for rule in group["rules"]}
    cases: list[dict[str, Any]] = [
        case
        for test in yaml.safe_load((directory / "alerts_test.yml").read_text())["tests"]
        for case in test["alert_rule_test"]
    ]
    assert len(alerts) == 3 and {case["alertname"] for case in cases if case.get("exp_alerts")} == alerts


def test_promtool_takes_the_expressions_of_the_dashboard(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": re.sub(r"\$__rate_interval", "1m", expression)}
        for number, expression in enumerate(expressions())
        if not expression.startswith("label_values")
    ]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", file)

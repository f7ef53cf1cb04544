"""Alert rules name metrics and labels that exist, and each has a section that says what to do."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from eomirror.lane.spec import Ending
from eomirror.metrics.families import FAMILIES
from eomirror.metrics.verdict import VERDICTS

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "deploy" / "prometheus"
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((FOLDER / "eomirror.rules.yaml").read_text())["groups"]
    for rule in group["rules"]
]
TESTS: list[dict[str, Any]] = yaml.safe_load((FOLDER / "eomirror.rules.test.yaml").read_text())["tests"]
PROMTOOL = shutil.which("promtool")
BY_NAME = {family.name: family for family in FAMILIES}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_a_rule_uses_what_is_exported(rule: dict[str, Any]) -> None:
    """A metric or a label that was renamed would make the rule silent for ever."""
    expression = str(rule["expr"])
    used = set(re.findall(r"\beomirror_\w+", expression))
    assert used <= BY_NAME.keys()
    assert used
    labels = {label for name in used for label in BY_NAME[name].labels} | {"job"}
    matched = re.findall(r"(\w+)=\"(.*?)\"", expression)
    grouped = [name for names in re.findall(r"(?:by|on) \((.*?)\)", expression) for name in names.split(", ")]
    assert {name for name, _ in matched} | set(grouped) <= labels
    assert {value for name, value in matched if name == "verdict"} <= set(VERDICTS)
    assert {value for name, value in matched if name == "reason"} <= {str(ending) for ending in Ending}
    shown = re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))
    assert set(shown) <= labels
    for opening, closing in ("()", "[]", "{}"):
        assert expression.count(opening) == expression.count(closing)
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert set(rule["annotations"]) == {"summary", "description"}


def test_each_alert_has_a_runbook_and_no_other_does() -> None:
    """An alert at three in the morning leads to a page that says what to do."""
    page = (ROOT / "docs" / "alerts.md").read_text()
    assert re.findall(r"^## (\w+)$", page, flags=re.MULTILINE) == [rule["alert"] for rule in RULES]


def test_each_alert_is_seen_to_fire_and_to_keep_still() -> None:
    """The tests for promtool hold a fault for each rule, and a healthy link on which none fires."""
    expected = [each for test in TESTS for each in test["alert_rule_test"]]
    names = {rule["alert"] for rule in RULES}
    assert {each["alertname"] for each in expected if each["exp_alerts"]} == names
    healthy = TESTS[0]["alert_rule_test"]
    assert {each["alertname"] for each in healthy if not each["exp_alerts"]} == names
    series = {
        name
        for test in TESTS
        for each in test["input_series"]
        for name in re.findall(r"^\w+", each["series"])
    }
    assert series - {"up"} <= BY_NAME.keys()


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not on PATH: see docs/alerts.md")
@pytest.mark.parametrize(
    "arguments", [("check", "rules", "eomirror.rules.yaml"), ("test", "rules", "eomirror.rules.test.yaml")]
)
def test_prometheus_takes_the_rules_and_they_fire(arguments: tuple[str, ...]) -> None:
    """As its own tool judges them."""
    done = subprocess.run(
        [str(PROMTOOL), *arguments], cwd=FOLDER, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr

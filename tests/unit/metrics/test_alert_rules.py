"""Alert rules name metrics and labels that exist, and each has a section that says what to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from eomirror.lane.spec import Ending
from eomirror.metrics.families import FAMILIES
from eomirror.metrics.verdict import VERDICTS

ROOT = Path(__file__).resolve().parents[3]
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((ROOT / "deploy" / "prometheus" / "eomirror.rules.yaml").read_text())[
        "groups"
    ]
    for rule in group["rules"]
]
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
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert set(rule["annotations"]) == {"summary", "description"}


def test_each_alert_has_a_runbook_and_no_other_does() -> None:
    """An alert at three in the morning leads to a page that says what to do."""
    page = (ROOT / "docs" / "alerts.md").read_text()
    assert re.findall(r"^## (\w+)$", page, flags=re.MULTILINE) == [rule["alert"] for rule in RULES]

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
from support.judges.alert_rules import History, firing, parsed

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
    assert used or expression == 'absent(up{job="eomirror"})'
    labels = {label for name in used for label in BY_NAME[name].labels} | {"job"}
    matched = re.findall(r"(\w+)=\"(.*?)\"", expression)
    grouped = [name for names in re.findall(r"(?:by|on) \((.*?)\)", expression) for name in names.split(", ")]
    assert {name for name, _ in matched} | set(grouped) <= labels
    assert {value for name, value in matched if name == "verdict"} <= set(VERDICTS)
    assert {value for name, value in matched if name == "reason"} <= {str(ending) for ending in Ending}
    shown = re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))
    assert set(shown) <= labels | {"instance"}
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


def series_of(text: str) -> list[float | None]:
    """Values in promtool's notation: ``a+bxn`` and ``axn`` are n values behind the first, ``_xn`` n missing ones."""
    values: list[float | None] = []
    for part in text.split():
        found = re.fullmatch(r"(_|NaN|[\d.]+)(?:\+([\d.]+))?x(\d+)", part)
        assert found is not None, part
        first, step, count = found[1], float(found[2] or 0), int(found[3])
        if first == "_":
            values += [None] * count
        else:
            values += [float(first) + step * number for number in range(count + 1)]
    return values


def seconds_of(text: str) -> int:
    """A duration, such as 15m."""
    return int(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]


def history_of(test: dict[str, Any]) -> History:
    """The input of a test for promtool."""
    step, rows = seconds_of(test["interval"]), []
    for each in test["input_series"]:
        name, labels = re.fullmatch(r"(\w+)\{(.*)\}", each["series"]).groups()  # type: ignore[union-attr]
        found = frozenset(re.findall(r'(\w+)="([^"]*)"', labels))
        rows.append((name, found, series_of(each["values"])))
    history = History()
    for number in range(max(len(values) for _, _, values in rows)):
        samples = [
            (name, labels, value)
            for name, labels, values in rows
            if number < len(values) and (value := values[number]) is not None
        ]
        history.scrapes.append((number * step, samples))
    return history


@pytest.mark.parametrize("test", TESTS, ids=lambda test: str(test["name"]))
def test_the_evaluator_of_the_fault_tests_agrees_with_promtool(test: dict[str, Any]) -> None:
    """Evaluated every minute, for as long as the rule waits: it fires on the same series as promtool's tests expect."""
    history = history_of(test)
    waits = {rule["alert"]: seconds_of(rule.get("for", "0m")) for rule in RULES}
    for each in test["alert_rule_test"]:
        alert, at = each["alertname"], seconds_of(each["eval_time"])
        fired: set[frozenset[tuple[str, str]]] | None = None
        for when in range(at - waits[alert], at + 1, 60):
            holds = firing(history, when, age=None, only=[alert]).get(alert, [])
            now = {frozenset(labels.items()) for labels in holds}
            fired = now if fired is None else fired & now
        expected = {
            frozenset((name, value) for name, value in one["exp_labels"].items() if name != "severity")
            for one in each["exp_alerts"]
        }
        assert fired == expected, (alert, each["eval_time"])


def test_the_evaluator_refuses_what_it_does_not_know() -> None:
    """A rule in another form would otherwise pass the fault tests unseen."""
    for expression in ("rate(x_total[5m]) > 0", 'x{a=~"b"} > 0', "x > 1 + 1", "sum(x)"):
        with pytest.raises(ValueError, match=r"not known|missing"):
            parsed(expression)


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

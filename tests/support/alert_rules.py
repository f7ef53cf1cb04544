"""Evaluates the shipped alert rules on scrapes, for the few forms of expressions that they have."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

__all__ = ["Scrape", "firing"]

RULES = Path(__file__).resolve().parents[2] / "deploy" / "prometheus" / "eomirror.rules.yaml"

#: Threshold of ages: a test does not wait for the minutes of the shipped ones.
AGE_SECONDS = 3.0

_COMPARED = re.compile(
    r"(?:(?:max|sum) by \([\w, ]+\) )?\(?(?:increase\()?(?P<name>\w+)(?:\{(?P<labels>[^}]*)\})?(?P<range>\[\w+\]\))?\)?"
    r" (?P<how>==|>) (?P<limit>[\d. *]+)"
)
_NAN = re.compile(
    r"count by \(link\) \(\((?P<name>\w+) != \w+\) unless on \(link, topic\) (?P<unless>\w+)\) > 0"
)


class Scrape:
    """Samples of one scrape of one link."""

    def __init__(self, text: str) -> None:
        self.samples = [
            sample for family in text_string_to_metric_families(text) for sample in family.samples
        ]

    def of(self, name: str, **labels: str) -> list[Any]:
        """Samples with this name and these labels."""
        return [each for each in self.samples if each.name == name and labels.items() <= each.labels.items()]


def firing(before: Scrape, now: Scrape) -> set[str]:
    """
    Returns the alerts whose expressions hold; ``for`` is left out, and a threshold of an age is `AGE_SECONDS`.

    Args:
        before: A scrape at the beginning of the range of ``increase``.
        now: The newest scrape.
    """
    groups = yaml.safe_load(RULES.read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    return {
        str(rule["alert"])
        for rule in rules
        if any(_holds(part.strip(), before, now) for part in str(rule["expr"]).split(" or "))
    }


def _holds(expression: str, before: Scrape, now: Scrape) -> bool:
    if found := _NAN.fullmatch(expression):
        known = {each.labels["topic"] for each in now.of(found["unless"])}
        return any(
            math.isnan(each.value) and each.labels["topic"] not in known for each in now.of(found["name"])
        )
    if (found := _COMPARED.fullmatch(expression)) is None:
        # such as a rule of several metrics; the test that names its alert fails
        return False
    labels = dict(re.findall(r'(\w+)="([^"]*)"', found["labels"] or ""))
    limit = (
        AGE_SECONDS
        if found["name"].endswith("_seconds")
        else math.prod(float(number) for number in found["limit"].split("*"))
    )
    values = [each.value for each in now.of(found["name"], **labels)]
    if found["range"]:
        values = [sum(values) - sum(each.value for each in before.of(found["name"], **labels))]
    return any(value == limit if found["how"] == "==" else value > limit for value in values)

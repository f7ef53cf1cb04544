"""The Grafana dashboard: every query names metrics and labels that exist, and its panels fit into the grid."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from eomirror.metrics.families import FAMILIES
from eomirror.metrics.verdict import VERDICTS

ROOT = Path(__file__).resolve().parents[3]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy" / "grafana" / "eomirror.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
BY_NAME = {family.name: family for family in FAMILIES}
#: of a histogram, and of Prometheus itself
SUFFIXES = ("_bucket", "_sum", "_count")
SCRAPED = {"job", "instance", "le"}


#: the table of queries of the page
PAGE = (ROOT / "docs" / "monitor.md").read_text().partition("\n## Reading the metrics\n")[2]
TOLD = [
    query
    for row in re.findall(r"^\| [^|]+ \| (`.*) \|$", PAGE, re.MULTILINE)
    for query in re.findall(r"`(eomirror_[^`]*|\w+[ (][^`]*)`", row)
]
PROMTOOL = shutil.which("promtool")


def queries() -> list[str]:
    """All expressions: of panels, of annotations and of variables."""
    found = [target["expr"] for panel in PANELS for target in panel.get("targets", ())]
    found += [each["expr"] for each in DASHBOARD["annotations"]["list"]]
    return found + [each["definition"] for each in DASHBOARD["templating"]["list"] if "definition" in each]


def family_of(name: str) -> str:
    """The family of a sample's name."""
    for suffix in SUFFIXES:
        base = name.removesuffix(suffix)
        if base != name and base in BY_NAME and BY_NAME[base].kind == "histogram":
            return base
    return name


@pytest.mark.parametrize("query", sorted({*queries(), *TOLD}))
def test_a_query_names_what_is_exported(query: str) -> None:
    """A panel of a metric that was renamed stays empty, and an empty panel looks like peace."""
    used = {family_of(name) for name in re.findall(r"\b(?:eomirror|process)_\w+", query)}
    assert used
    assert used <= BY_NAME.keys()
    labels = {label for name in used for label in BY_NAME[name].labels} | SCRAPED
    grouped = [name for names in re.findall(r"\b(?:by|on) \((.*?)\)", query) for name in names.split(", ")]
    matched = re.findall(r"[{,]\s*(\w+)=~?\"", query)
    assert set(grouped) | set(matched) <= labels
    for opening, closing in ("()", "[]", "{}"):
        assert query.count(opening) == query.count(closing)
    # a rate of what is no counter, or a counter without one, says nothing
    for name in used:
        rated = re.search(rf"\b(?:rate|increase)\({name}", query) is not None
        assert rated == (BY_NAME[name].kind in {"counter", "histogram"}) or "gap_records" in name


def test_a_legend_uses_labels_that_its_query_keeps() -> None:
    """Grafana shows a label that is not there as nothing."""
    for panel in PANELS:
        for target in panel.get("targets", ()):
            shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            by = re.findall(r"\bby \((.*?)\)", target["expr"])
            kept = {name for names in by for name in names.split(", ")} or SCRAPED
            assert shown <= kept, panel["title"]


def test_panels_fit_into_the_grid_and_none_covers_another() -> None:
    """Each has an id of its own, a title, and the data source that the reader chooses."""
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    cells: set[tuple[int, int]] = set()
    for panel in PANELS:
        at = panel["gridPos"]
        mine = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert max(x for x, _ in mine) < 24
        assert not cells & mine, panel["title"]
        cells |= mine
        assert panel["title"]
        if panel["type"] != "row":
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert panel["targets"]
    rows = [panel["title"] for panel in PANELS if panel["type"] == "row"]
    assert rows == ["Can I fail over?", "Is it flowing?", "Which topic is worst?", "The engine"]


def test_each_verdict_has_a_colour_and_its_name() -> None:
    """The value is always 1: the name tells, and a link that is down is not green."""
    (panel,) = (each for each in PANELS if each["title"] == "Verdict")
    assert panel["options"]["textMode"] == "name"
    assert panel["targets"][0]["legendFormat"].endswith(": {{verdict}}")
    colours = {}
    for override in panel["fieldConfig"]["overrides"]:
        assert override["matcher"]["id"] == "byRegexp"
        pattern = override["matcher"]["options"].strip("/")
        for word in VERDICTS:
            if re.search(pattern, f"east->west: {word}"):
                assert word not in colours
                colours[word] = override["properties"][0]["value"]["fixedColor"]
    assert colours.keys() == set(VERDICTS)
    assert {word for word, colour in colours.items() if colour == "red"} == {
        "down", "stalled", "stopped", "rewound", "source away", "target away"
    }  # fmt: skip


def test_it_is_of_a_schema_that_grafana_imports() -> None:
    """Schema 39: types of panels and units that it has, and no id of a database."""
    assert DASHBOARD["schemaVersion"] == 39
    assert isinstance(DASHBOARD["version"], int)
    assert not {"id", "__inputs", "__requires"} & DASHBOARD.keys()
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", DASHBOARD["uid"])
    for panel in PANELS:
        assert panel["type"] in {"row", "stat", "table", "timeseries"}
        if panel["type"] == "row":
            assert (panel["collapsed"], panel["panels"]) == (False, [])
            continue
        settings = panel["fieldConfig"]["defaults"]
        assert settings["unit"] in {"short", "s", "bytes", "cps", "Bps", "percentunit"}
        assert settings["color"]["mode"] in {"palette-classic", "thresholds"}
        steps = settings["thresholds"]["steps"]
        assert steps[0]["value"] is None
        assert [step["value"] for step in steps[1:]] == sorted(step["value"] for step in steps[1:])
        names = [target["refId"] for target in panel["targets"]]
        assert names == ["A", "B", "C"][: len(names)]
        for target in panel["targets"]:
            assert target["instant"] is not target["range"]
            assert target["format"] == ("table" if panel["type"] == "table" else "time_series")
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    assert variables.keys() == {"datasource", "link"}
    assert variables["link"]["query"]["query"] == variables["link"]["definition"]
    used = set(re.findall(r"\$\{?(\w+)", json.dumps([PANELS, DASHBOARD["annotations"]])))
    assert used <= {*variables, "__rate_interval"}


def test_every_metric_stands_in_the_reference() -> None:
    """A reader looks up there what a panel shows."""
    reference = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    for query in queries():
        for name in re.findall(r"\b(?:eomirror|process)_\w+", query):
            assert f"| `{family_of(name)}` |" in reference


def test_the_page_names_queries() -> None:
    """The table of docs/monitor.md is read as it stands."""
    assert len(TOLD) > 12
    assert any(query.startswith("histogram_quantile(") for query in TOLD)


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not on PATH: just deploy-check")
def test_prometheus_parses_each_query(tmp_path: Path) -> None:
    """With values for what Grafana fills in, each is the expression of a rule."""
    rules = []
    for number, query in enumerate(queries() + TOLD):
        if not query.startswith("label_values("):
            filled = query.replace("$link", ".*").replace("$__rate_interval", "1m")
            rules.append({"record": f"query:{number}", "expr": filled})
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    done = subprocess.run(
        [str(PROMTOOL), "check", "rules", str(tmp_path / "rules.yaml")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout

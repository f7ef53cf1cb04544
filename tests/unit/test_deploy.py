"""The files under deploy/ name commands, options, paths and exit codes that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from eomirror import errors
from eomirror.cli.app import cli

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "eomirror"
UNIT = (DEPLOY / "systemd" / "eomirror@.service").read_text()
CONTAINER = (DEPLOY / "container" / "Containerfile").read_text()
TEMPLATE = (CHART / "templates" / "deployment.yaml").read_text()


def command(name: str) -> click.Command:
    """A command of eomirror."""
    assert isinstance(cli, click.Group)
    found = cli.get_command(click.Context(cli), name)
    assert found is not None, name
    return found


def options_of(name: str) -> set[str]:
    """The options that a command takes."""
    return {option for parameter in command(name).params for option in parameter.opts}


def test_the_unit_runs_commands_that_exist() -> None:
    """Each eomirror command of the unit exists, and takes a file."""
    called = re.findall(r"^Exec\w+=\S+/eomirror (\S+) \S+$", UNIT, re.MULTILINE)
    assert called == ["check", "run"]
    assert all("config" in {parameter.name for parameter in command(name).params} for name in called)


def test_the_unit_restarts_only_what_a_restart_can_mend() -> None:
    """No restart after the exit codes of usage, data loss, another owner and a refused configuration; one after 1."""
    kept = {int(code) for code in re.findall(r"RestartPreventExitStatus=(.*)", UNIT)[0].split()}
    fatal = {errors.UsageError, errors.DataLossError, errors.SupersededError, errors.ConfigError}
    assert {error.exit_code for error in fatal} <= kept
    assert errors.MirrorError.exit_code not in kept
    assert kept - {error.exit_code for error in fatal} <= {6}, "6 is the failover verbs' code of contract.md"


def test_the_image_copies_files_that_exist_and_installs_by_hash() -> None:
    """Every COPY from the checkout has its source; nothing is installed that the lock does not name."""
    copied = [
        name
        for line in re.findall(r"^COPY (?!--from)(.+)$", CONTAINER, re.MULTILINE)
        for name in line.split()[:-1]
    ]
    assert "deploy/container/requirements.txt" in copied
    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert "--require-hashes" in CONTAINER
    assert "--no-deps" in CONTAINER


def test_the_locks_agree() -> None:
    """The image runs the releases that the tests run with."""
    pins = {
        name: dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", (ROOT / name).read_text(), re.MULTILINE))
        for name in ("requirements.txt", "deploy/container/requirements.txt")
    }
    every, run = pins.values()
    assert {"confluent-kafka", "pyspark", "orjson", "structlog"} <= set(run)
    assert {name: every.get(name) for name in run} == run
    assert not {"mypy", "ruff", "pytest"} & set(run)


def test_the_chart_is_of_this_release() -> None:
    """Chart and package have one version."""
    version = re.findall(r'^version = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[0]
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == version


def test_the_chart_gives_options_and_probes_that_exist() -> None:
    """The container's arguments are options of `run`, and the probes ask paths that it serves."""
    given = set(re.findall(r"^ +- (--[a-z-]+)$", TEMPLATE, re.MULTILINE))
    assert given == {"--listen"}
    assert given <= options_of("run")
    served = (ROOT / "docs" / "monitor.md").read_text()
    probes = set(re.findall(r"path: (/\w+)", TEMPLATE))
    assert probes == {"/livez", "/readyz"}
    assert all(f"`{path}`" in served for path in probes)


def test_the_charts_values_are_all_described() -> None:
    """Each value of values.yaml stands in values.schema.json, and no further one is accepted."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert schema["additionalProperties"] is False
    assert set(values) == set(schema["properties"]) - {"global"}
    for name in ("image", "metrics", "serviceAccount", "networkPolicy"):
        assert schema["properties"][name]["additionalProperties"] is False
        assert set(values[name]) == set(schema["properties"][name]["properties"])


@pytest.mark.parametrize("path", sorted(CHART.glob("templates/*.yaml")), ids=lambda path: path.name)
def test_every_value_that_a_template_uses_exists(path: Path) -> None:
    """A template that names a value which values.yaml does not have would render nothing."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    used = set(re.findall(r"\.Values\.([A-Za-z.]+)", path.read_text()))
    for name in used:
        found = values
        for part in name.split("."):
            assert part in found, f"{path.name}: {name}"
            found = found[part]


def included(template: str, indent: int) -> str:
    """A template's file, as ``.Files.Get`` and ``nindent`` put it into the output."""
    (name,) = re.findall(r'\.Files\.Get "(.+?)"', (CHART / "templates" / template).read_text())
    assert f"nindent {indent} }}}}" in (CHART / "templates" / template).read_text()
    return "\n" + "\n".join(" " * indent + line for line in (CHART / name).read_text().split("\n"))


def test_the_chart_holds_the_alert_rules_of_this_checkout() -> None:
    """`spec` of the PrometheusRule is the file that the tests of alerts judge."""
    found = yaml.safe_load("spec:" + included("prometheusrule.yaml", 2))["spec"]
    shipped = yaml.safe_load((DEPLOY / "prometheus" / "eomirror.rules.yaml").read_text())
    assert found == shipped
    assert len(found["groups"][0]["rules"]) > 20


def test_the_chart_holds_the_dashboard_of_this_checkout() -> None:
    """Grafana's sidecar reads it from one key of a ConfigMap."""
    found = yaml.safe_load("data:\n  eomirror.json: |-" + included("dashboard.yaml", 4))["data"][
        "eomirror.json"
    ]
    assert json.loads(found) == json.loads((DEPLOY / "grafana" / "eomirror.json").read_text())


def test_the_charts_scrapes_carry_the_job_of_the_rules() -> None:
    """`up{job="eomirror"}` matches nothing if the operator chooses the name of the job."""
    rules = (DEPLOY / "prometheus" / "eomirror.rules.yaml").read_text()
    assert set(re.findall(r'job="(\w+)"', rules)) == {
        yaml.safe_load((CHART / "Chart.yaml").read_text())["name"]
    }
    assert "jobLabel: app.kubernetes.io/name" in (CHART / "templates" / "podmonitor.yaml").read_text()
    assert "app.kubernetes.io/name: {{ .Chart.Name }}" in (CHART / "templates" / "_helpers.tpl").read_text()


HELM = shutil.which("helm")


@pytest.mark.skipif(HELM is None, reason="helm is not on PATH")
def test_helm_renders_rules_and_dashboard_only_if_asked(tmp_path: Path) -> None:
    """As helm itself renders them; off by default."""

    def rendered(**metrics: Any) -> dict[str, Any]:
        values = {
            "config": {"clusters": {"a": {}, "b": {}}, "links": [{"source": "a", "target": "b"}]},
            "metrics": metrics,
        }
        (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
        done = subprocess.run(
            [str(HELM), "template", "orders", str(CHART), "-f", str(tmp_path / "values.yaml")],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        return {
            each["kind"] + "/" + each["metadata"]["name"]: each for each in yaml.safe_load_all(done.stdout)
        }

    assert not {name for name in rendered() if name.startswith("PrometheusRule") or "dashboard" in name}
    found = rendered(rules={"enabled": True, "labels": {"release": "p"}}, dashboard={"enabled": True})
    rule = found["PrometheusRule/orders-eomirror"]
    assert rule["metadata"]["labels"]["release"] == "p"
    assert rule["spec"] == yaml.safe_load((DEPLOY / "prometheus" / "eomirror.rules.yaml").read_text())
    board = found["ConfigMap/orders-eomirror-dashboard"]
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(board["data"]["eomirror.json"])["title"]

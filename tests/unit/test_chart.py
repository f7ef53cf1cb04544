"""The Helm chart: what it renders is of this release, fits Kubernetes' schemas, and starts what exists."""

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

from eomirror.cli.app import cli
from eomirror.config import load_config

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "eomirror"
TEMPLATE = (CHART / "templates" / "deployment.yaml").read_text()
PAGE = (ROOT / "docs" / "deploy.md").read_text()

HELM = shutil.which("helm")
KUBECONFORM = shutil.which("kubeconform")
#: beside it, one folder for each release: scripts/deploy_tools.py
SCHEMAS = Path(KUBECONFORM or "").with_name("kubernetes") if KUBECONFORM else Path()
needs_helm = pytest.mark.skipif(HELM is None, reason="helm is not on PATH: just deploy-check")

CONFIG = {
    "clusters": {"a": {"bootstrap.servers": "a:9092"}, "b": {"bootstrap.servers": "b:9092"}},
    "links": [{"source": "a", "target": "b", "topics": ["t"]}],
}
#: values by the name of the variant
VARIANTS: dict[str, dict[str, Any]] = {
    "page": yaml.safe_load(
        re.findall(r'^```yaml title="values.yaml"\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL)[0]
    ),
    "least": {"config": CONFIG},
    "no metrics": {"config": CONFIG, "metrics": {"enabled": False}, "networkPolicy": {"enabled": True}},
    "standby": {"config": CONFIG, "replicas": 2},
    "no page": {"config": CONFIG, "serve": {"enabled": False}},
    "all": {
        "config": {**CONFIG, "defaults": {"lanes": 4}, "spark": {"spark.driver.memory": "512m"}},
        "image": {"repository": "registry.example/eomirror", "tag": "1", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "pull"}],
        "envFrom": [{"configMapRef": {"name": "environment"}}, {"secretRef": {"name": "passwords"}}],
        "secretMounts": [{"name": "ca", "secretName": "ca", "mountPath": "/etc/ca"}],
        "args": ["--link", "a->b", "--metrics-per-group"],
        "metrics": {
            "port": 9999,
            "podMonitor": {"enabled": True, "interval": "30s", "labels": {"release": "p"}},
            "rules": {"enabled": True, "labels": {"release": "p"}},
            "dashboard": {"enabled": True, "annotations": {"folder": "Kafka"}},
        },
        "serviceAccount": {"create": False, "name": "mirror", "annotations": {"a": "b"}},
        "networkPolicy": {
            "enabled": True,
            "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"port": 9092}]}],
            "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        },
        "podAnnotations": {"a": "b"},
        "podLabels": {"team": "data"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
    },
}


def command(name: str) -> click.Command:
    """A command of eomirror."""
    assert isinstance(cli, click.Group)
    found = cli.get_command(click.Context(cli), name)
    assert found is not None, name
    return found


def test_the_chart_is_of_this_release() -> None:
    """Chart and package have one version."""
    version = re.findall(r'^version = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[0]
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == version


def options_of(name: str) -> set[str]:
    """The options that a command takes."""
    return {option for parameter in command(name).params for option in parameter.opts}


def test_the_chart_gives_options_and_probes_that_exist() -> None:
    """The container's arguments are options of `run`, and the probes ask paths that it serves."""
    given = set(re.findall(r"^ +- (--[a-z-]+)$", TEMPLATE, re.MULTILINE))
    assert given == {"--listen", "--standby"}
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
    for name in ("image", "metrics", "serve", "serviceAccount", "networkPolicy"):
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


def helm(tmp_path: Path, action: str, values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Lints or renders the chart with values."""
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    # a helm that `go install` builds takes Kubernetes for an old one
    name = ["orders", "--kube-version", "1.25.0"] if action == "template" else []
    return subprocess.run(
        [str(HELM), action, *name, str(CHART), "-f", str(tmp_path / "values.yaml")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def rendered(tmp_path: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Resources by kind and name."""
    done = helm(tmp_path, "template", values)
    assert done.returncode == 0, done.stderr
    return {each["kind"] + "/" + each["metadata"]["name"]: each for each in yaml.safe_load_all(done.stdout)}


@needs_helm
@pytest.mark.parametrize(("replicas", "strategy"), [(1, "Recreate"), (2, "RollingUpdate")])
def test_pods_beside_the_first_stand_by(tmp_path: Path, replicas: int, strategy: str) -> None:
    """Without the option a second mirror of the same links would end with exit code 5."""
    spec = rendered(tmp_path, {"config": CONFIG, "replicas": replicas})["Deployment/orders-eomirror"]["spec"]
    assert (spec["replicas"], spec["strategy"]["type"]) == (replicas, strategy)
    (container,) = spec["template"]["spec"]["containers"]
    assert ("--standby" in container["args"]) is (replicas > 1)
    assert ("topologySpreadConstraints" in spec["template"]["spec"]) is (replicas > 1)


@needs_helm
@pytest.mark.parametrize("variant", VARIANTS)
def test_helm_finds_no_fault(variant: str, tmp_path: Path) -> None:
    """Its own linter, with each variant of the values."""
    done = helm(tmp_path, "lint", VARIANTS[variant])
    assert done.returncode == 0, done.stdout + done.stderr


@needs_helm
@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({}, "links"),
        ({"config": {**CONFIG, "clusters": {}}}, "clusters"),
        ({"config": {**CONFIG, "link": []}}, "link"),
        ({"config": CONFIG, "metric": {}}, "metric"),
        ({"config": CONFIG, "metrics": {"port": 70000}}, "port"),
        ({"config": CONFIG, "metrics": {"podMonitor": {"interval": "often"}}}, "interval"),
        (
            {"config": CONFIG, "secretMounts": [{"name": "ca", "secretName": "ca", "mountPath": "ca"}]},
            "mountPath",
        ),
        ({"config": CONFIG, "terminationGracePeriodSeconds": 1}, "terminationGracePeriodSeconds"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_helm_refuses_wrong_values(values: dict[str, Any], named: str, tmp_path: Path) -> None:
    """By values.schema.json, before anything is sent to a cluster."""
    done = helm(tmp_path, "template", values)
    assert done.returncode != 0
    assert named in done.stderr


@needs_helm
@pytest.mark.skipif(KUBECONFORM is None, reason="kubeconform is not on PATH: just deploy-check")
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_oldest_and_the_newest_kubernetes_take_it(variant: str, tmp_path: Path) -> None:
    """All that is rendered fits their schemas; those of the Prometheus operator are not among them."""
    releases = sorted(SCHEMAS.iterdir(), key=lambda path: int(path.name.split(".")[1]))
    assert releases[0].name.startswith("v1.25."), "kubeVersion of Chart.yaml"
    done = helm(tmp_path, "template", VARIANTS[variant])
    for release in (releases[0], releases[-1]):
        judged = subprocess.run(
            [
                str(KUBECONFORM), "-strict", "-summary", "-output", "json", "-skip", "PodMonitor,PrometheusRule",
                "-schema-location", f"{release}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json",
            ],
            input=done.stdout, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert judged.returncode == 0, judged.stdout + judged.stderr
        assert json.loads(judged.stdout)["summary"]["valid"] >= 2


@needs_helm
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_rendered_pod_runs_and_is_found(
    variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The arguments and the configuration are accepted; probes, mounts, monitor and policy name what the pod has."""
    found = rendered(tmp_path, VARIANTS[variant])
    deployment = found["Deployment/orders-eomirror"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    name, *arguments = container["args"]
    given = command(name).make_context(name, arguments).params
    text = found["ConfigMap/orders-eomirror"]["data"]["mirror.yaml"]
    for secret in re.findall(r"\$\{env:(\w+)\}", text):
        monkeypatch.setenv(secret, "x")
    (tmp_path / "mirror.yaml").write_text(text)
    assert {given["config"]} == {f"{each['mountPath']}/mirror.yaml" for each in container["volumeMounts"][:1]}
    config = load_config(tmp_path / "mirror.yaml")
    assert all(config.link(each) for each in given["links"])
    volumes = {each["name"] for each in deployment["spec"]["template"]["spec"]["volumes"]}
    assert {each["name"] for each in container["volumeMounts"]} == volumes

    labels = deployment["spec"]["template"]["metadata"]["labels"]
    selector = deployment["spec"]["selector"]
    assert selector["matchLabels"].items() <= labels.items()
    probes = [value for key, value in container.items() if key.endswith("Probe")]
    ports = {each["name"]: each["containerPort"] for each in container.get("ports", [])}
    if given["listen"] is None:
        assert not probes
        assert not ports
    else:
        assert ports == {"metrics": int(given["listen"].rpartition(":")[2])}
        assert [probe["httpGet"]["port"] for probe in probes] == ["metrics"] * 3
    if policy := found.get("NetworkPolicy/orders-eomirror"):
        assert policy["spec"]["podSelector"] == selector
        opened = [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]]
        assert opened == list(ports)
    if monitor := found.get("PodMonitor/orders-eomirror"):
        assert monitor["spec"]["selector"] == selector
        assert [each["port"] for each in monitor["spec"]["podMetricsEndpoints"]] == list(ports)
    account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
    assert (f"ServiceAccount/{account}" in found) is (variant != "all")


@needs_helm
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_page_runs_in_a_pod_of_its_own(variant: str, tmp_path: Path) -> None:
    """Its labels are none of the mirror's, so that no deployment, monitor or policy takes the other's pod."""
    found = rendered(tmp_path, VARIANTS[variant])
    if variant == "no page":
        assert not [name for name in found if name.endswith("-serve")]
        return
    deployment, service = found["Deployment/orders-eomirror-serve"], found["Service/orders-eomirror-serve"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    name, *arguments = container["args"]
    given = command(name).make_context(name, arguments).params
    port = int(given["listen"].rpartition(":")[2])
    assert [each["containerPort"] for each in container["ports"]] == [port]
    assert [each["port"] for each in service["spec"]["ports"]] == [port]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    selector = deployment["spec"]["selector"]["matchLabels"]
    assert service["spec"]["selector"] == selector
    assert selector.items() <= labels.items()
    mirror = found["Deployment/orders-eomirror"]["spec"]
    assert not mirror["selector"]["matchLabels"].items() <= labels.items()
    assert not selector.items() <= mirror["template"]["metadata"]["labels"].items()
    volumes = {each["name"] for each in deployment["spec"]["template"]["spec"]["volumes"]}
    assert {each["name"] for each in container["volumeMounts"]} == volumes
    assert labels["app.kubernetes.io/part-of"] == "eomirror"
    assert ("PodMonitor/orders-eomirror-serve" in found) is ("PodMonitor/orders-eomirror" in found)
    assert ("NetworkPolicy/orders-eomirror-serve" in found) is ("NetworkPolicy/orders-eomirror" in found)


@needs_helm
def test_helm_renders_rules_and_dashboard_only_if_asked(tmp_path: Path) -> None:
    """As helm itself renders them; off by default."""
    assert not {
        name
        for name in rendered(tmp_path, VARIANTS["least"])
        if name.startswith(("PrometheusRule", "PodMonitor")) or "dashboard" in name
    }
    found = rendered(tmp_path, VARIANTS["all"])
    rule = found["PrometheusRule/orders-eomirror"]
    assert rule["metadata"]["labels"]["release"] == "p"
    assert rule["spec"] == yaml.safe_load((DEPLOY / "prometheus" / "eomirror.rules.yaml").read_text())
    board = found["ConfigMap/orders-eomirror-dashboard"]
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(board["data"]["eomirror.json"])["title"]

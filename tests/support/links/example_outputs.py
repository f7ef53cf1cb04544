"""
Writes the outputs of commands that need clusters into the pages of the topologies.

    just docs-examples           all pages
    just docs-examples fan-in    this page

A comment ``<!-- output on clusters: eomirror COMMAND -->`` stands before each.  The commands of a page run in order, on
three clusters without topics of another page, after the traffic of `support.links.example_scenarios` was written.  Log
lines are left out.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from support.links.example_scenarios import EXAMPLES, SCENARIOS
from support.links.example_site import ExampleSite, emptied, three_clusters

__all__ = ["main"]

PAGES = EXAMPLES.parent / "topologies"

_OUTPUT = re.compile(
    r"^(?P<mark>(?P<indent> *)<!-- output on clusters: eomirror (?P<arguments>[^\n]+) -->\n)"
    r"(?: *```text\n(?P<text>.*?)^ *```\n)?",
    flags=re.MULTILINE | re.DOTALL,
)
_LOG_LINE = re.compile(
    r"\d{4}-\d\d-\d\dT|%\d\||WARNING|Picked up |Using Spark|Setting default log level|To adjust"
)


def _output_of(arguments: list[str], folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "eomirror", *arguments, "-o", "table"],
        cwd=folder,
        env={**os.environ, "COLUMNS": "110", "NO_COLOR": "1", "EOMIRROR_LOG_FORMAT": "text"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    sys.stdout.write(done.stdout)
    sys.stdout.flush()
    if done.returncode != 0:
        raise SystemExit(f"eomirror {shlex.join(arguments)}: exit code {done.returncode}")
    lines = [line.rstrip() for line in done.stdout.splitlines() if not _LOG_LINE.match(line)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n") + "\n"


def _with_outputs(page: Path, site: ExampleSite) -> str:
    def replace(found: re.Match[str]) -> str:
        arguments = shlex.split(found["arguments"])
        output = _output_of(arguments, site.path.parent)
        for _ in range(site.scenario.hops - 1 if arguments[0] == "run" else 0):
            _output_of(arguments, site.path.parent)
        return found["mark"] + textwrap.indent(f"```text\n{output}```\n", found["indent"])

    return _OUTPUT.sub(replace, page.read_text())


def main(names: list[str]) -> int:
    """Writes the pages of these examples, or all."""
    with three_clusters() as clusters, tempfile.TemporaryDirectory() as folder:
        for name in names or SCENARIOS:
            for properties in clusters:
                emptied(properties)
            site = ExampleSite(name, clusters, Path(folder), plane="auto")
            site.write(1)
            site.read_half()
            page = PAGES / f"{name}.md"
            page.write_text(_with_outputs(page, site))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""This mirror, started as its users start it: ``eomirror run CONFIG``."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.peers import standalone
from bench.peers.process import MirrorProcess
from bench.workloads import MASK_SECRET, MASKED_FIELD, masked_value

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.peers.process import Site
    from bench.workloads import Workload

__all__ = ["Mirror"]


@dataclass(frozen=True, slots=True)
class Mirror:
    """
    This mirror on one of its planes.

    Attributes:
        plane: ``client`` or ``native``.
        epoch: How long one Spark task runs a lane, as in the configuration; empty for the default.
        lanes: How many.
        workers: Workers of one core each, of a standalone Spark cluster of its own; 0 for a local master.
        checkout: Another built checkout, whose mirror is measured instead of this one; None for this one.
    """

    plane: str = "client"
    epoch: str = ""
    lanes: int = 2
    workers: int = 0
    checkout: Path | None = None

    @property
    def name(self) -> str:
        """Short."""
        return f"eo{self.plane}" if self.checkout is None else f"eo{self.plane}before"

    @property
    def title(self) -> str:
        """In reports."""
        title = f"eomirror, {self.plane} plane"
        return title if self.checkout is None else f"{title}, {_commit(self.checkout)}"

    @property
    def transactional(self) -> bool:
        """Whether its copies have to hold transaction markers."""
        return True

    def link(self, workload: Workload) -> str:
        """Name of the link in state topics."""
        return f"{self._alias(workload)}.target"

    def target_topic(self, workload: Workload) -> str:
        """Where it copies a workload's topic to."""
        return f"{self._alias(workload)}.{workload.topic}"

    def changes(self, workload: Workload) -> Callable[[bytes], bytes] | None:
        """Returns what it makes of a value; None if it copies."""
        return masked_value if workload.masked else None

    def configure(self, site: Site, workload: Workload) -> Path:
        """Write its configuration."""
        path = site.folder / f"{self.name}.yaml"
        # JSON is YAML
        path.write_text(json.dumps(self._config(site, workload), indent=2), encoding="ascii")
        return path

    def start(
        self, site: Site, workload: Workload, *, pair: bool = False, second: bool = False
    ) -> MirrorProcess:
        """Start it in processes of its own; the second of a pair stands by."""
        del pair
        python = sys.executable if self.checkout is None else str(self.checkout / ".venv/bin/python")
        command = [python, "-m", "eomirror", "run", str(self.configure(site, workload))]
        if second:
            command.append("--standby")
        if self.workers:
            command = [sys.executable, standalone.__file__, str(self.workers), *command]
        return MirrorProcess(f"{self.name}{'-second' * second}", command, folder=site.folder)

    def _alias(self, workload: Workload) -> str:
        return self.name + workload.name.replace("-", "")

    def _config(self, site: Site, workload: Workload) -> dict[str, Any]:
        source = self._alias(workload)
        target: dict[str, Any] = {"bootstrap.servers": site.target}
        # on the native plane batches keep the codec that they have, and saying more is refused
        if workload.codec != "none" and self.plane != "native":
            target["producer"] = {"compression.type": workload.codec}
        defaults: dict[str, Any] = {"lanes": self.lanes, "plane": self.plane}
        link: dict[str, Any] = {
            "source": source, "target": "target", "topics": [workload.topic], "groups": []
        }  # fmt: skip
        if workload.masked:
            mask = {"fields": [MASKED_FIELD], "with": "hash", "secret": MASK_SECRET}
            link["transform"] = [{"mask": mask}]
        if workload.provenance:
            defaults["provenance"] = "on"
        if self.epoch:
            defaults["epoch"] = self.epoch
        return {
            "clusters": {source: {"bootstrap.servers": site.source}, "target": target},
            "links": [link],
            "defaults": defaults,
        }


def _commit(checkout: Path) -> str:
    """Returns the short commit of a checkout."""
    asked = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()

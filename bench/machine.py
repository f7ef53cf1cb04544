"""What the figures were taken on: enough to judge them, nothing that names the place."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import confluent_kafka
import psutil

from eomirror.jvm import find_java
from eomirror.localkafka.jars import DEFAULT_KAFKA, exact_version

__all__ = ["describe_machine", "load_average"]

_ROOT = Path(__file__).resolve().parent.parent


def describe_machine() -> dict[str, Any]:
    """Processor, memory and versions."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "java": _java_version(),
        "kafka": exact_version(DEFAULT_KAFKA),
        "pyspark": importlib.metadata.version("pyspark"),
        "confluent_kafka": confluent_kafka.version(),
        "librdkafka": confluent_kafka.libversion()[0],
        "commit": _commit(),
    }


def load_average() -> float:
    """Runnable processes over the last minute: well above 1 before a run starts means that others are at work."""
    return round(os.getloadavg()[0], 2)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _java_version() -> str:
    # -version writes to standard error, by tradition
    banner = subprocess.run([str(find_java()), "-version"], capture_output=True, text=True, check=True).stderr
    found = re.search(r'"([^"]+)"', banner)
    return found[1] if found else "unknown"


def _commit() -> str:
    """The commit that is checked out, marked when files differ from it; empty outside a repository."""
    try:
        commit = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f"{commit}, with changes" if changed else commit


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=True).stdout.strip()

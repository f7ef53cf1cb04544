"""
A transactional, exactly-once Kafka-to-Kafka replicator.

::

    from eomirror import Mirror, load_config

    with Mirror(load_config("mirror.yaml")) as mirror:
        report = mirror.run(until="caught-up")

Importing this package is cheap: Spark, the Kafka client and the Rust core are loaded when a name that needs them is
used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eomirror.config import Config, load_config
    from eomirror.errors import (
        AuthorizationError,
        ClusterError,
        ConfigError,
        DataLossError,
        DifferenceError,
        Fault,
        MirrorError,
        NotReadyError,
        RecordRefusedError,
        StateError,
        SupersededError,
        TopicError,
        UnrepresentableRecordError,
        UsageError,
    )
    from eomirror.mirror import Mirror
    from eomirror.status.snapshot import RunReport, Snapshot
    from eomirror.types import SourcePartition

    __version__: str

__all__ = [
    "AuthorizationError",
    "ClusterError",
    "Config",
    "ConfigError",
    "DataLossError",
    "DifferenceError",
    "Fault",
    "Mirror",
    "MirrorError",
    "NotReadyError",
    "RecordRefusedError",
    "RunReport",
    "Snapshot",
    "SourcePartition",
    "StateError",
    "SupersededError",
    "TopicError",
    "UnrepresentableRecordError",
    "UsageError",
    "__version__",
    "load_config",
]

_HOMES = {
    "Config": "eomirror.config",
    "Mirror": "eomirror.mirror",
    "RunReport": "eomirror.status.snapshot",
    "Snapshot": "eomirror.status.snapshot",
    "SourcePartition": "eomirror.types",
    "load_config": "eomirror.config",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = _version()
    elif name in __all__:
        value = getattr(importlib.import_module(_HOMES.get(name, "eomirror.errors")), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415  10 ms that few callers need

    try:
        return version("eomirror")
    except PackageNotFoundError:
        return "0+source"  # imported from a checkout that is not installed

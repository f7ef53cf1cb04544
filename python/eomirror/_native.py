"""
Imports the Rust extension ``eomirror._core``; all other modules import its names from here.

Checks that the extension belongs to this release, because a stale build in a checkout causes misleading errors.
"""

from __future__ import annotations

import warnings
from importlib.metadata import PackageNotFoundError, version

try:
    from eomirror._core import (
        Acks,
        HangingTransactionClient,
        LogAudit,
        NativeLane,
        OriginComparison,
        PartitionAccount,
        PartitionComparison,
        PartitionMap,
        PatternSet,
        Plan,
        PlaneReader,
        Planner,
        Policy,
        Witness,
        __version__,
        build_profile,
        decode_offset_map,
        digest_behind,
        encode_offset_map,
        lacking_rights,
        last_hop,
    )
except ImportError as error:
    raise ImportError(
        "the Rust extension eomirror._core is missing or was built for another Python; in a checkout run ./dev"
    ) from error

__all__ = [
    "Acks",
    "HangingTransactionClient",
    "LogAudit",
    "NativeLane",
    "OriginComparison",
    "PartitionAccount",
    "PartitionComparison",
    "PartitionMap",
    "PatternSet",
    "Plan",
    "PlaneReader",
    "Planner",
    "Policy",
    "Witness",
    "decode_offset_map",
    "digest_behind",
    "encode_offset_map",
    "lacking_rights",
    "last_hop",
]

try:
    _installed = version("eomirror")
except PackageNotFoundError:
    _installed = __version__
if _installed != __version__:
    raise ImportError(f"eomirror is {_installed}, its extension is {__version__}; in a checkout run ./dev")
if build_profile != "release":
    warnings.warn("eomirror's extension is a debug build: correct, but slow", RuntimeWarning, stacklevel=2)

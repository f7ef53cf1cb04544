"""
Imports the Rust extension ``eomirror._core``; all other modules import its names from here.

Checks that the extension belongs to this release, because a stale build in a checkout causes misleading errors.
"""

from __future__ import annotations

import warnings
from importlib.metadata import PackageNotFoundError, version

try:
    # the stub lists the names, once
    from eomirror._core import *  # noqa: F403  all that the stub lists
    from eomirror._core import __version__, build_profile
except ImportError as error:
    raise ImportError(
        "the Rust extension eomirror._core is missing or was built for another Python; in a checkout run ./dev"
    ) from error

try:
    _installed = version("eomirror")
except PackageNotFoundError:
    _installed = __version__
if _installed != __version__:
    raise ImportError(f"eomirror is {_installed}, its extension is {__version__}; in a checkout run ./dev")
if build_profile != "release":
    warnings.warn("eomirror's extension is a debug build: correct, but slow", RuntimeWarning, stacklevel=2)

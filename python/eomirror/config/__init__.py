"""
Parses a YAML file into frozen types, and reports all of its faults at once.

`load_config` is the entry point, or `inspect_config` if faults are the result.  `masked` is the only form in which a
configuration may be shown.
"""

from eomirror.config.load import Inspection, inspect_config, load_config
from eomirror.config.masking import masked
from eomirror.config.model import Cluster, Config, Link
from eomirror.config.secret import Secret

__all__ = [
    "Cluster",
    "Config",
    "Inspection",
    "Link",
    "Secret",
    "inspect_config",
    "load_config",
    "masked",
]

"""
Exact translation of offsets between the two sides of a link.

::

    from eomirror import load_config
    from eomirror.groups import translate

    for each in translate(load_config("mirror.yaml"), group="billing"):
        print(each.to_topic, each.to_partition, each.to_offset)

The answers come from the target alone (positions and offset map), with or without a running mirror; only the committed
offsets of a group are read from the source.
"""

from __future__ import annotations

from eomirror.groups.offset_queries import GroupPartition, group_offsets, translate
from eomirror.groups.transfer import ImportedGroup, export_offsets, import_offsets
from eomirror.groups.translation import Translation

__all__ = [
    "GroupPartition",
    "ImportedGroup",
    "Translation",
    "export_offsets",
    "group_offsets",
    "import_offsets",
    "translate",
]

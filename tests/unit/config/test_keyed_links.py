"""Links that place records by key: refused settings, and settings that they turn off."""

from __future__ import annotations

import pytest

from eomirror.config import Inspection, inspect_config
from eomirror.errors import UsageError

CLUSTERS = {alias: {"bootstrap.servers": f"{alias}:9092"} for alias in ("shop1", "shop2", "lake")}
KEYED = {"partitions": "keyed", "origin_header": True, "aggregate": True}


def inspected(*settings: dict[str, object], **defaults: object) -> Inspection:
    """One link from each shop to the lake."""
    links = [
        {"source": f"shop{number}", "target": "lake", "topics": ["orders"], "naming": "identity", **each}
        for number, each in enumerate(settings, 1)
    ]
    return inspect_config({"clusters": CLUSTERS, "links": links, "defaults": defaults})


@pytest.mark.parametrize(
    ("setting", "path", "words"),
    [
        ({"origin_header": False}, "partitions", "keyed needs origin_header: true"),
        ({"on_refused": "dead-letter"}, "on_refused", "source partition of a refused record"),
        ({"sync_group_offsets": True}, "sync_group_offsets", "no offset map"),
        ({"groups": ["billing"]}, "groups", "no offset map"),
        ({"offset_syncs": "source"}, "offset_syncs", "no offset map"),
        ({"provenance": "on"}, "partitions", "one way only"),
        ({"partitions": "preserve", "target_partitions": 4}, "target_partitions", "partitions is preserve"),
    ],
)
def test_a_setting_that_needs_one_target_partition_is_refused(
    setting: dict[str, object], path: str, words: str
) -> None:
    """Each is a fault of its own path, with a fix."""
    (fault,) = inspected({**KEYED, **setting}).faults

    assert fault.path == f"links[0].{path}"
    assert words in fault.message
    assert fault.fix


def test_a_keyed_link_in_both_directions_is_refused() -> None:
    """The loop guard needs the partition that a record came from."""
    links = [
        {"source": source, "target": target, "topics": ["orders"], "naming": "identity", **KEYED}
        for source, target in (("shop1", "lake"), ("lake", "shop1"))
    ]
    faults = inspect_config({"clusters": CLUSTERS, "links": links}).faults

    assert [fault.path for fault in faults] == ["links[0].partitions", "links[1].partitions"]


def test_a_keyed_link_follows_no_groups_and_says_so() -> None:
    """What would need the offset map is off, also if the defaults of the file turn it on."""
    config = inspected({**KEYED, "target_partitions": 12}, groups=[".*"], offset_syncs="target").config

    assert config is not None
    (link,) = config.links
    assert (link.groups, link.offset_syncs, link.target_partitions) == ((), "off", 12)
    assert link.remark == "partitions: keyed: offsets of consumer groups are not translated"
    with pytest.raises(UsageError, match="no offset map"):
        config.mapped_link()
    with pytest.raises(UsageError, match="no offset map"):
        config.mapped_links()


def test_commands_for_all_links_leave_out_keyed_ones() -> None:
    """Another link of the file has an offset map."""
    config = inspected(KEYED, {"topics": ["payments"]}).config

    assert config is not None
    assert [link.source for link in config.mapped_links()] == ["shop2"]
    assert config.links[1].groups == (".*",)
    assert not config.links[1].remark


@pytest.mark.parametrize(
    ("first", "second", "path"),
    [
        (KEYED, {"aggregate": True}, "links[1].partitions"),
        ({**KEYED, "target_partitions": 3}, {**KEYED, "target_partitions": 4}, "links[1].target_partitions"),
        (KEYED, KEYED, None),
    ],
)
def test_links_into_one_topic_place_records_alike(
    first: dict[str, object], second: dict[str, object], path: str | None
) -> None:
    """Else records of one key would be in several partitions."""
    assert [fault.path for fault in inspected(first, second).faults] == ([path] if path else [])

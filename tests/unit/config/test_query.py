"""The setting `transform` with a query: what is refused, and what the link does not have then."""

from __future__ import annotations

from typing import Any

import pytest

from eomirror.config import Inspection, inspect_config, masked
from eomirror.config.model import require_mapped, require_untransformed
from eomirror.errors import UsageError

CLUSTERS = {alias: {"bootstrap.servers": f"{alias}:9092"} for alias in ("east", "west")}
SQL = {"sql": "SELECT key, value, headers, timestamp FROM records WHERE topic = 'orders'"}


def inspected(transform: Any, **link: Any) -> Inspection:
    """One link with this transform."""
    links = [{"source": "east", "target": "west", "topics": ["orders"], "transform": transform, **link}]
    return inspect_config({"clusters": CLUSTERS, "links": links}, environ={})


@pytest.mark.parametrize("transform", [SQL, {"python": "masking.europe:mask_customers"}])
def test_a_query_is_one_producer_without_group_offsets(transform: dict[str, str]) -> None:
    config = inspected(transform, lanes=4).config

    assert config is not None
    (link,) = config.links
    ((kind, text),) = transform.items()
    assert link.query is not None
    assert (link.query.kind, link.query.query) == (kind, text)
    assert (link.producers, link.lanes, link.groups, link.offset_syncs, link.keyed) == (1, 4, (), "off", True)
    assert link.compiled() is None
    assert kind in link.remark
    assert masked(config)["links"][0]["transform"] == transform
    for refuse in (lambda: require_mapped([link]), lambda: require_untransformed(link, "restore")):
        with pytest.raises(UsageError):
            refuse()


@pytest.mark.parametrize(
    "transform",
    [
        {},
        {"sql": "SELECT 1 FROM records", "python": "a:b"},
        {"keep": {"where": {"key": True}}},
        {"sql": "DELETE FROM records"},
        {"sql": ""},
        {"sql": ["SELECT"]},
        {"python": "masking"},
        {"python": "masking:"},
        {"python": "os; rm:x"},
    ],
)
def test_a_query_that_cannot_be_one_is_refused_with_its_path(transform: Any) -> None:
    faults = inspected(transform).faults

    assert faults
    assert all(fault.path.startswith("links[0].transform") and fault.fix for fault in faults)


@pytest.mark.parametrize(
    "setting",
    [
        {"partitions": "keyed"},
        {"groups": ["billing"]},
        {"on_gap": "accept"},
        {"on_refused": "raise-limit"},
        {"plane": "native"},
        {"sync_group_offsets": True},
        {"offset_syncs": "target"},
        {"origin_header": True},
    ],
)
def test_settings_of_lanes_are_refused_with_a_query(setting: dict[str, Any]) -> None:
    faults = inspected(SQL, **setting).faults

    found = {fault.path for fault in faults if "transform: sql has no such setting" in fault.message}
    assert found == {f"links[0].{next(iter(setting))}"}

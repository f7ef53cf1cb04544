"""Which plane a lane is mirrored by."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from eomirror.clock import SYSTEM_CLOCK
from eomirror.config import load_config
from eomirror.errors import ClusterError, PlaneChangedError
from eomirror.lane.spec import LaneSpec
from eomirror.plane.client.plane import ClientPlane
from eomirror.plane.native.plane import NativePlane, unsupported_properties
from eomirror.plane.protocol import SendPlan, Serving
from eomirror.plane.select import PlaneSelector, plane_selector
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from pathlib import Path

SEARCH = SendPlan(ranges={SourcePartition("orders", 0): ((100, 10),)})


class Recorder:
    """A plane that notes what is asked of it."""

    def __init__(self, name: str, calls: list[str], reason: str = "") -> None:
        self.name, self.calls, self.reason = name, calls, reason

    def serving(self) -> Serving:
        return Serving(self.name, self.reason)

    def set_send_plan(self, send_plan: SendPlan) -> None:
        self.calls.append(f"{self.name} treat {len(send_plan.ranges)}")

    def close(self) -> None:
        self.calls.append(f"{self.name} close")


def selecting(calls: list[str]) -> PlaneSelector:
    """The selector of a lane, over two recorders."""
    made: Any = Recorder
    return PlaneSelector(
        0, native=lambda: made("native", calls), client=lambda reason: made("client", calls, reason)
    )


def test_the_native_plane_serves_and_keeps_serving() -> None:
    """A new producer of the same plane keeps its connections."""
    calls: list[str] = []
    planes = selecting(calls)
    first = planes.select(SendPlan())
    assert first.serving() == Serving("native")
    assert planes.select(SendPlan()) is first
    assert calls == []
    planes.close()
    assert calls == ["native close"]


def test_a_refused_record_is_sought_by_the_client_plane() -> None:
    """What is known of the search is told before it opens; over, the search gives the lane back."""
    calls: list[str] = []
    planes = selecting(calls)
    planes.select(SendPlan())
    with capture_logs() as told:
        plane = planes.select(SEARCH)
    reason = "a record that the target refuses is being isolated"
    assert plane.serving() == Serving("client", reason)
    assert [(one["event"], one["plane"], one["reason"]) for one in told] == [
        ("plane_serves", "client", reason)
    ]
    assert planes.select(SEARCH) is plane
    assert calls == ["native close", "client treat 1"]
    assert planes.select(SendPlan()).serving() == Serving("native")
    assert calls[2:] == ["client close"]


def test_a_target_that_only_the_client_plane_serves_keeps_it() -> None:
    """For as long as the lane lives, also after a search; what is over is told."""
    calls: list[str] = []
    planes = selecting(calls)
    planes.select(SendPlan())
    planes.fall_back("transaction.version is 1")
    plane = planes.select(SendPlan())
    assert plane.serving() == Serving("client", "transaction.version is 1")
    assert planes.select(SEARCH) is planes.select(SendPlan()) is plane
    assert calls == ["native close", "client treat 1", "client treat 0"]


@pytest.fixture
def spec(tmp_path: Path) -> LaneSpec:
    """A lane of a link that asks for the native plane."""
    path = tmp_path / "mirror.yaml"
    path.write_text(
        "clusters:\n  a: {bootstrap.servers: 'a:1'}\n  b: {bootstrap.servers: 'b:1'}\n"
        "links:\n  - {source: a, target: b, topics: [orders], plane: native}\n"
    )
    config = load_config(path)
    return LaneSpec(
        link=config.links[0], source=config.clusters["a"], target=config.clusters["b"], source_cluster_id="A",
        target_cluster_id="B", run="r", generation=1, lane=0, epoch=1, attempt=1, seconds=1.0, partitions=(),
    )  # fmt: skip


def chosen(spec: LaneSpec, plane: str = "native") -> Any:
    """What would move the bytes of this lane."""
    topics: Any = SimpleNamespace(source_policies=lambda _: {}, target_settings=lambda _: {})
    spec = replace(spec, link=replace(spec.link, plane=plane))
    return plane_selector(spec, topics, SYSTEM_CLOCK).select(SendPlan())


def test_the_link_chooses_the_plane(spec: LaneSpec) -> None:
    """`client` is what it says; the native plane is the first choice otherwise."""
    assert isinstance(chosen(spec, "native"), NativePlane)
    assert isinstance(chosen(spec, "auto"), NativePlane)
    assert isinstance(chosen(spec, "client"), ClientPlane)


def test_records_are_placed_by_key_on_the_native_plane(spec: LaneSpec) -> None:
    """Both planes place them alike, so that nothing but the setting chooses."""
    keyed = replace(spec, link=replace(spec.link, partitions="keyed", origin_header=True))
    assert isinstance(chosen(keyed, "auto"), NativePlane)
    assert isinstance(chosen(keyed, "client"), ClientPlane)


def test_a_property_that_only_librdkafka_has_is_named_with_its_reason(spec: LaneSpec) -> None:
    """Asked for by name, the native plane does not quietly leave a property out; else it gives way for that reason."""
    source = replace(spec.source, properties={**spec.source.properties, "ssl.crl.location": "/crl.pem"})
    spec = replace(spec, source=source)
    reason = r"a: ssl\.crl\.location: it does not check revocation lists"
    with pytest.raises(ClusterError, match=reason):
        chosen(spec).open()
    with pytest.raises(PlaneChangedError, match=reason):
        chosen(spec, "auto").open()


def test_a_codec_for_the_target_is_not_honoured(spec: LaneSpec) -> None:
    """Whole batches keep the codec of their producers."""
    target = replace(spec.target, producer={"compression.type": "zstd"})
    assert unsupported_properties(spec) == []
    assert unsupported_properties(replace(spec, target=target)) == [
        "b: compression.type: batches keep the compression of their producers"
    ]

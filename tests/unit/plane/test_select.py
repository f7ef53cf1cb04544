"""Which plane a lane is mirrored by."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.clock import SYSTEM_CLOCK
from eomirror.config import load_config
from eomirror.errors import ClusterError
from eomirror.lane.spec import LaneSpec
from eomirror.plane.client.plane import ClientPlane
from eomirror.plane.fallback import FallbackPlane
from eomirror.plane.select import choose_plane, unsupported_properties

if TYPE_CHECKING:
    from pathlib import Path


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
    return choose_plane(replace(spec, link=replace(spec.link, plane=plane)), topics, SYSTEM_CLOCK)


def test_the_link_chooses_the_plane(spec: LaneSpec) -> None:
    """`native` and `client` are what they say."""
    assert isinstance(chosen(spec, "native"), FallbackPlane)
    assert isinstance(chosen(spec, "client"), ClientPlane)


def test_a_property_that_only_librdkafka_has_is_named_with_its_reason(spec: LaneSpec) -> None:
    """Asked for by name, the native plane does not quietly leave a property out."""
    source = replace(spec.source, properties={**spec.source.properties, "ssl.crl.location": "/crl.pem"})
    with pytest.raises(ClusterError, match=r"a: ssl\.crl\.location: it does not check revocation lists"):
        chosen(replace(spec, source=source))


def test_a_codec_for_the_target_is_not_honoured(spec: LaneSpec) -> None:
    """Whole batches keep the codec of their producers."""
    target = replace(spec.target, producer={"compression.type": "zstd"})
    assert unsupported_properties(spec) == []
    assert unsupported_properties(replace(spec, target=target)) == [
        "b: compression.type: batches keep the compression of their producers"
    ]


def test_auto_takes_the_client_plane_where_the_native_one_cannot_serve(spec: LaneSpec) -> None:
    """And the native one where it can."""
    target = replace(spec.target, producer={"compression.type": "zstd"})
    assert isinstance(chosen(spec, "auto"), FallbackPlane)
    assert isinstance(chosen(replace(spec, target=target), "auto"), ClientPlane)

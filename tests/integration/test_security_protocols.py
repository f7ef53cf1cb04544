"""Each security protocol of a client at each kind of listener of a broker: a pair that does not fit is named."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest

from eomirror.config import Cluster
from eomirror.errors import ClusterError
from eomirror.kafka.admin import identify
from eomirror.localkafka.cluster import LocalCluster
from eomirror.localkafka.spec import ClusterSpec, Listener

if TYPE_CHECKING:
    from collections.abc import Iterator

# seven seconds each; CI plays a listener (tests/unit/kafka/test_security_mismatch.py)
pytestmark = [pytest.mark.integration, pytest.mark.slow]

_KINDS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalCluster]:
    """A broker with a listener of each kind."""
    listeners = tuple(Listener(kind.upper().replace("_", ""), kind) for kind in _KINDS)
    with LocalCluster.start(
        ClusterSpec("doors", users={"u": "secret-of-u"}, extra_listeners=listeners)
    ) as cluster:
        yield cluster


def _properties(broker: LocalCluster, kind: str) -> dict[str, str]:
    """Returns what a client needs for a listener of this kind."""
    return broker.client_properties_of("u", listener=kind.upper().replace("_", ""))


@pytest.mark.parametrize(("client", "listener"), list(product(_KINDS, _KINDS)))
def test_a_client_of_another_protocol_is_told_so(broker: LocalCluster, client: str, listener: str) -> None:
    """The error names the address and what to change."""
    properties = _properties(broker, client) | {
        "bootstrap.servers": _properties(broker, listener)["bootstrap.servers"]
    }
    cluster = Cluster("east", properties)

    if client == listener:
        assert identify(cluster, client_id="test")
        return
    with pytest.raises(ClusterError) as raised:
        identify(cluster, client_id="test")
    assert "security.protocol" in raised.value.fix
    assert "secret" not in str(raised.value)

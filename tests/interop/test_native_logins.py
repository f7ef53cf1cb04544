"""OAUTHBEARER through a whole mirror on the native plane: tokens of an endpoint, and unsigned tokens."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from eomirror._native import LogAudit, PartitionComparison, PlaneReader
from eomirror.localkafka.cluster import ClusterSpec
from support.clusters.token_endpoint import TokenEndpoint, token_endpoint, unsigned_token
from support.links.link import TestLink
from support.traffic.records import create_topic, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from eomirror.localkafka.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.spark]

CANARY = "canary-Zq"


def unsigned() -> str:
    """What the guarded cluster takes, for five minutes."""
    now = int(time.time())
    return unsigned_token(sub="mirror", scope="read", iat=now, exp=now + 300)


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    """Gives unsigned tokens to clients that know the secret."""
    with token_endpoint() as server:
        server.knows("mirror", CANARY, unsigned)
        yield server


@pytest.fixture
def guarded(start_cluster: Callable[[ClusterSpec], LocalCluster]) -> LocalCluster:
    """A cluster that takes tokens with the scope ``read``, and ends sessions after two seconds (KIP-368)."""
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    demand = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.client.oauthbearer.sasl.jaas.config": (
            f'{module} required unsecuredLoginStringClaim_sub="broker" unsecuredValidatorRequiredScope="read";'
        ),
        "connections.max.reauth.ms": "2000",
    }
    return start_cluster(ClusterSpec("guarded", security="sasl_plaintext", properties=demand))


OWN_TOKENS = """
import base64, json, time

def token(config):
    now = int(time.time())
    claims = {"sub": "mirror", "scope": config, "iat": now, "exp": now + 300}
    parts = (json.dumps(part).encode() for part in ({"alg": "none", "typ": "JWT"}, claims))
    return ".".join([*(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts), ""]), now + 300
"""


@pytest.mark.slow
def test_a_mirror_logs_in_with_tokens(
    guarded: LocalCluster,
    west: Any,
    endpoint: TokenEndpoint,
    topic_name: str,
    tmp_path: Path,
    spark_context: Any,
) -> None:
    """
    A cluster's section as librdkafka has it serves both planes: admin and lanes log in, again when sessions end.

    On the native plane the endpoint is asked through Python.  A function of the user's reaches the workers by its name.
    """
    bare = {name: value for name, value in guarded.client_properties.items() if not name.startswith("sasl.")}
    oidc = {
        **bare,
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "mirror",
        "sasl.oauthbearer.client.secret": CANARY,
        "sasl.oauthbearer.token.endpoint.url": endpoint.url,
    }
    unsecured = {
        **bare,
        "sasl.mechanism": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": "principal=mirror scope=read",
    }
    module = tmp_path / "own_tokens.py"
    module.write_text(OWN_TOKENS)
    spark_context.addPyFile(str(module))
    function = {
        **bare,
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": "own_tokens:token",
        "sasl.oauthbearer.config": "read",
    }
    link = TestLink(
        guarded.client_properties, west.client_properties, topic_name, tmp_path, spark_context, lanes=1
    )
    link.create("orders")
    for section, plane in (
        (oidc, "native"),
        (unsecured, "native"),
        (function, "native"),
        (function, "client"),
    ):
        link.clusters["east"] = section
        link.settings["plane"] = plane
        with link.running() as run:
            for _ in range(3):
                link.write("orders", 50)
                run.wait(lambda: link.whole("orders"))
                # a session ends meanwhile
                time.sleep(1.2)
        link.check("orders")
    # those of the native plane come from Python
    agents = [headers.get("User-Agent", "") for headers, _ in endpoint.asked]
    assert any(agent.startswith("Python-urllib") for agent in agents)


class Interrupted:
    """Gives a token that is old in a moment; the client that asks for the next one is interrupted, as by Ctrl-C."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, config: str) -> tuple[str, float]:
        del config
        self.asked += 1
        if self.asked > 1:
            raise KeyboardInterrupt
        return unsigned(), time.time() + 0.01


def test_an_interruption_while_a_token_is_asked_for_ends_who_reads(
    guarded: LocalCluster, topic_name: str
) -> None:
    """What a signal's handler raises in the function that gives tokens is raised by the step that asked for one."""
    create_topic(guarded.client_properties, topic_name)
    bare = {name: value for name, value in guarded.client_properties.items() if not name.startswith("sasl.")}
    properties = {**bare, "sasl.mechanism": "OAUTHBEARER"}
    audit = LogAudit(properties, 30.0, Interrupted())
    audit.add(topic_name, 0, "data", 0, 1, "")
    source, target = (PlaneReader(properties, 30.0, Interrupted()) for _ in range(2))
    partition = (topic_name, 0, 0, 1, 1)
    comparison = PartitionComparison(partition, partition)
    # so that the connections to the partition's leader need tokens of their own
    time.sleep(0.1)
    for step in (lambda: audit.step(0.1), lambda: comparison.step(source, target, 0.1)):
        with pytest.raises(KeyboardInterrupt):
            wait_for(step, 20)

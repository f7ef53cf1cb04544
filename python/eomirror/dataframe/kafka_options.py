"""
Options ``kafka.*`` of Spark's Kafka connector, as properties of our clients. Pure.

The connector passes them to Java's client, so names are Java's; librdkafka's names are taken as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eomirror.config.mm2_clients import ClientProperties, PropertyKeys
from eomirror.config.model import Cluster, FrozenMapping
from eomirror.config.secret import Secret, is_secret_key
from eomirror.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PREFIX", "kafka_cluster"]

PREFIX = "kafka."
_SERVERS = "bootstrap.servers"
# Java's, which have no counterpart or another meaning in librdkafka
_JAVA_ONLY = ("sasl.jaas.config", "ssl.truststore.", "ssl.keystore.", "key.serializer", "value.serializer")


def kafka_cluster(alias: str, options: Mapping[str, str]) -> Cluster:
    """
    Returns the cluster that the options ``kafka.*`` describe.

    Args:
        alias: Its name in messages.
        options: All options; names in any case before ``kafka.``.

    Raises:
        UsageError: ``kafka.bootstrap.servers`` is missing, or an option has no counterpart.
    """
    given = {name[len(PREFIX) :]: value for name, value in options.items() if name.lower().startswith(PREFIX)}
    if not given.get(_SERVERS):
        raise UsageError(
            f"option {PREFIX}{_SERVERS} is missing", fix=f'.option("{PREFIX}{_SERVERS}", "HOST:PORT")'
        )
    keys = PropertyKeys({PREFIX + name: (value, 0) for name, value in given.items()})
    properties: dict[str, Any] = {}
    java = {name: PREFIX + name for name in given if name.startswith(_JAVA_ONLY[:3])}
    if java:
        names = {name: PREFIX + name for name in given}
        ClientProperties(keys, keep_secrets=True).convert("KAFKA", "options", names, properties)
        for refused in keys.refused.values():
            if refused.grave:
                raise UsageError(
                    f"option {refused.key}: {refused.reason}", fix="use PEM files, or librdkafka's names"
                )
    properties |= {
        name: value
        for name, value in given.items()
        if name not in properties and not name.startswith(_JAVA_ONLY)
    }
    secrets = {
        name: Secret(value) if is_secret_key(name) and not isinstance(value, Secret) else value
        for name, value in properties.items()
    }
    return Cluster(alias=alias, properties=FrozenMapping(secrets))

"""
Rules for client properties: those that users may set, and those that the mirror sets (EO-12). Pure.

Properties that exactly-once depends on cannot be changed: a configuration that sets another value is refused before
anything connects.  `clients` forces the values of the same table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from eomirror.config.nodes import quoted
from eomirror.config.secret import Secret
from eomirror.config.token_function import OAUTH_CB, function_fault

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "ADVICE",
    "CODECS",
    "CONSUMER_FORCED",
    "MSK_MECHANISM",
    "MSK_TOKEN_FUNCTION",
    "PRODUCER_FORCED",
    "cluster_advice",
    "cluster_conflict",
    "is_sent_in_clear",
    "login_advice",
    "property_fault",
]

CONSUMER_FORCED: Mapping[str, str] = {
    "isolation.level": "read_committed",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "check.crcs": "true",
    "auto.offset.reset": "error",
    "enable.partition.eof": "true",
    "allow.auto.create.topics": "false",
}

PRODUCER_FORCED: Mapping[str, str] = {
    "enable.idempotence": "true",
    "acks": "all",
    "allow.auto.create.topics": "false",  # a broker must not recreate a deleted target topic as an empty one (EO-5)
}

_REASONS = {
    "isolation.level": "the mirror reads committed records only",
    "enable.auto.commit": "positions are committed on the target, in the transaction of the records",
    "enable.auto.offset.store": "positions are committed on the target, in the transaction of the records",
    "check.crcs": "a corrupt batch must not be mirrored",
    "auto.offset.reset": "a lost position must stop the topic, not skip or repeat records",
    "enable.partition.eof": "the mirror needs the event to detect that it has caught up",
    "allow.auto.create.topics": "the mirror creates topics itself, with the source's settings",
    "enable.idempotence": "without it a retried request writes records twice",
    "acks": "a record that only the leader has stored can be lost after its acknowledgement",
}

# spellings of the same properties, and of the same values
_ALIASES = {"request.required.acks": "acks", "auto.commit.enable": "enable.auto.commit"}
_VALUES = {("acks", "-1"): "all", ("enable.auto.commit", "0"): "false"}

# property -> why the mirror sets it, and what to use instead
_OURS: Mapping[str, tuple[str, str]] = {
    "transactional.id": (
        "the mirror chooses transactional ids so that a newer attempt fences an older one",
        "",
    ),
    "transaction.timeout.ms": ("the mirror sets it", "set `transaction_timeout` of the link"),
    "group.id": ("the mirror uses no consumer group: it stores positions on the target", ""),
    "group.instance.id": ("the mirror uses no consumer group: it stores positions on the target", ""),
    "group.protocol": ("the mirror uses no consumer group: it stores positions on the target", ""),
    "client.id": ("the mirror sets it to eomirror.LINK.ROLE, for brokers' logs and quotas", ""),
    "metadata.broker.list": ("it is an alias of bootstrap.servers", "write bootstrap.servers"),
    "plugin.library.paths": ("it loads foreign code into every process of the mirror", ""),
    "interceptors": ("it runs foreign code in every process of the mirror", ""),
    "statistics.interval.ms": ("the mirror reads statistics itself", "use the mirror's own metrics"),
    "enabled_events": ("the mirror handles the client's events itself", ""),
    "log.queue": ("the mirror handles the client's log itself", ""),
    "enable.gapless.guarantee": ("it ends a lane in cases from which the mirror recovers", ""),
    "delivery.report.only.error": ("the mirror accounts for every record (EO-7)", ""),
    "opaque": ("only programs can use it", ""),
}

# settings with which librdkafka creates or requests tokens itself
_TOKENS: Mapping[str, tuple[str, ...]] = {
    "sasl.oauthbearer.method": ("oidc",),
    "enable.sasl.oauthbearer.unsecure.jwt": ("true", "t", "1"),
}

_MECHANISMS = ("sasl.mechanism", "sasl.mechanisms")
#: Java's name of Amazon MSK's mechanism for IAM, and the token function that takes its place.
MSK_MECHANISM = "AWS_MSK_IAM"
MSK_TOKEN_FUNCTION = "eomirror.aws_msk_iam:token"  # noqa: S105  the name of a function
_VERIFICATION = "enable.ssl.certificate.verification"
_IDENTIFICATION = "ssl.endpoint.identification.algorithm"
_TOKEN_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105  the name of a property

#: Properties of a producer that the native plane cannot honour: batches keep the codec of their producers.
CODECS = ("compression.type", "compression.codec", "compression.level")

#: Properties of other Kafka clients, and librdkafka's counterparts.
ADVICE: Mapping[str, str] = {
    "sasl.jaas.config": "librdkafka has no JAAS: set sasl.username and sasl.password",
    "sasl.login.callback.handler.class": "use sasl.oauthbearer.method: oidc, or oauth_cb: MODULE:FUNCTION",
    "sasl.client.callback.handler.class": "use sasl.oauthbearer.method: oidc",
    "ssl.truststore.location": "use ssl.ca.location with a PEM file",
    "ssl.truststore.password": "use ssl.ca.location with a PEM file, which needs no password",
    "ssl.truststore.type": "use ssl.ca.location with a PEM file",
    "ssl.truststore.certificates": "use ssl.ca.pem",
    "ssl.keystore.key": "use ssl.key.pem",
    "ssl.keystore.certificate.chain": "use ssl.certificate.pem",
    "ssl.keystore.type": "use ssl.keystore.location with a PKCS#12 file, or ssl.key.location with PEM",
    "fetch.max.wait.ms": "librdkafka calls it fetch.wait.max.ms",
    "buffer.memory": "librdkafka calls it queue.buffering.max.kbytes",
    "max.request.size": "librdkafka calls it message.max.bytes",
    "max.block.ms": "remove it; the mirror sets its own time-outs",
    "send.buffer.bytes": "librdkafka calls it socket.send.buffer.bytes",
    "receive.buffer.bytes": "librdkafka calls it socket.receive.buffer.bytes",
    "request.timeout.ms": "for all requests librdkafka has socket.timeout.ms",
    "default.api.timeout.ms": "librdkafka has socket.timeout.ms",
    "key.serializer": "remove it; records are copied byte by byte",
    "value.serializer": "remove it; records are copied byte by byte",
    "key.deserializer": "remove it; records are copied byte by byte",
    "value.deserializer": "remove it; records are copied byte by byte",
}


def property_fault(key: str, value: str | Secret) -> tuple[str, str]:
    """
    Returns why a client property is refused, and the fix; empty texts if it is accepted.

    Checks the mirror's own rules only; `eomirror.kafka.client_check` lets librdkafka check names and values.
    """
    name = _ALIASES.get(key, key)
    if name in _OURS:
        why, instead = _OURS[name]
        return f"it cannot be set: {why} (EO-12)", instead or "remove it"
    if key == OAUTH_CB:
        return function_fault(value)
    if key.endswith("_cb") or key.startswith("on_") or key in ("default.topic.config", "default_topic_conf"):
        return "only programs can set it, not a file", "remove it"
    forced = CONSUMER_FORCED.get(name) or PRODUCER_FORCED.get(name)
    if forced is not None:
        given = "" if isinstance(value, Secret) else value.strip().lower()
        if _VALUES.get((name, given), given) != forced:
            shown = "this value" if isinstance(value, Secret) else quoted(value)
            instead = (
                "set `start: latest` on the link" if (name, given) == ("auto.offset.reset", "latest") else ""
            )
            return (
                f"{shown} is refused: {_REASONS[name]} (EO-12)",
                f"remove it; the mirror sets {forced}" + (f"; {instead}" if instead else ""),
            )
    if key in _MECHANISMS and not isinstance(value, Secret) and value.strip().upper() == MSK_MECHANISM:
        return (
            "librdkafka has no such mechanism",
            f"write sasl.mechanism: OAUTHBEARER and oauth_cb: {MSK_TOKEN_FUNCTION}, and pip install 'eomirror[aws]'",
        )
    if key == "debug":
        # librdkafka accepts contexts in any case, with a sign before them
        contexts = {part.strip().lstrip("+-").lower() for part in str(value).split(",")}
        if isinstance(value, Secret) or contexts & {"security", "all"}:
            return "its contexts `security` and `all` write credentials to the log", "use other contexts"
    if key in ADVICE and key != "request.timeout.ms":
        return "this is a property of another Kafka client", ADVICE[key]
    return "", ""


def cluster_conflict(properties: Mapping[str, str | Secret]) -> tuple[str, str, str] | None:
    """Returns a property that conflicts with others of its cluster: (key, message, fix); None without a conflict."""
    if OAUTH_CB not in properties:
        return None
    given = {key: str(properties.get(key, "")).strip().lower() for key in _TOKENS}
    for key, value in _TOKENS.items():
        if given[key] in value:
            return (
                OAUTH_CB,
                f"conflicts with {key}: only one of them can provide tokens",
                "remove one of them",
            )
    return None


def cluster_advice(properties: Mapping[str, str | Secret]) -> list[tuple[str, str, str]]:
    """Returns warnings about a cluster's properties: (key, message, fix)."""
    found = []
    protocol = str(properties.get("security.protocol", "plaintext")).lower()
    sasl = [
        key
        for key in ("sasl.username", "sasl.password", "sasl.mechanism", "sasl.mechanisms")
        if key in properties
    ]
    if (
        sasl
        and not isinstance(properties.get("security.protocol"), Secret)
        and not protocol.startswith("sasl")
    ):
        found.append(
            (
                sasl[0],
                f"it has no effect while security.protocol is {protocol}",
                "set security.protocol: SASL_SSL",
            )
        )
    if (
        protocol == "sasl_plaintext"
        and str(properties.get("sasl.mechanism", properties.get("sasl.mechanisms", ""))).upper() == "PLAIN"
    ):
        found.append(("security.protocol", "the password is sent unencrypted", "use SASL_SSL"))
    return [*found, *login_advice(properties)]


def login_advice(properties: Mapping[str, str | Secret]) -> list[tuple[str, str, str]]:
    """
    Returns warnings about properties that allow a man in the middle: (key, message, fix).

    Args:
        properties: Properties of a cluster, or of its consumers or producers.
    """
    found = []
    if _plain(properties, _VERIFICATION) in ("false", "f", "0"):
        found.append((_VERIFICATION, "a man in the middle can read and change all traffic", "remove it"))
    if _plain(properties, _IDENTIFICATION) == "none":
        found.append(
            (
                _IDENTIFICATION,
                "the broker's host name is not checked against its certificate, so others can impersonate the broker",
                "remove it, and issue broker certificates for the advertised host names",
            )
        )
    if is_sent_in_clear(_plain(properties, _TOKEN_ENDPOINT)):
        found.append(
            (_TOKEN_ENDPOINT, "the client's secret and its tokens are sent unencrypted", "use https://")
        )
    return found


def _plain(properties: Mapping[str, str | Secret], key: str) -> str:
    value = properties.get(key, "")
    return (value.reveal() if isinstance(value, Secret) else value).strip().lower()


def is_sent_in_clear(url: str) -> bool:
    """Returns True if a URL is plain http to another machine."""
    if not url.startswith("http://"):
        return False
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return True
    return host not in ("localhost", "::1") and not host.startswith("127.")

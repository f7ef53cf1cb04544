//! Support of each property: honoured, ignored or refused. Names are those of librdkafka's CONFIGURATION.md (2.16).

/// Support of a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// Honoured under this name, which may differ for an alias.
    Honoured {
        /// The canonical name.
        name: &'static str,
    },
    /// Without an effect on fetching and producing.
    Ignored {
        /// The reason.
        reason: &'static str,
    },
    /// Supported by another client only.
    Refused {
        /// The reason.
        reason: &'static str,
    },
}

const HONOURED: [&str; 36] = [
    "bootstrap.servers",
    "broker.address.family",
    "client.id",
    "client.rack",
    "enable.sasl.oauthbearer.unsecure.jwt",
    "enable.ssl.certificate.verification",
    "fetch.error.backoff.ms",
    "fetch.max.bytes",
    "fetch.message.max.bytes",
    "fetch.min.bytes",
    "fetch.wait.max.ms",
    "receive.message.max.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "sasl.mechanism",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.method",
    "sasl.password",
    "sasl.username",
    "security.protocol",
    "socket.connection.setup.timeout.ms",
    "socket.keepalive.enable",
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
    "socket.timeout.ms",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.location",
    "ssl.key.pem",
    "topic.metadata.refresh.fast.interval.ms",
    "topic.metadata.refresh.interval.ms",
];

const ALIASES: [(&str, &str); 3] = [
    ("max.partition.fetch.bytes", "fetch.message.max.bytes"),
    ("metadata.broker.list", "bootstrap.servers"),
    ("sasl.mechanisms", "sasl.mechanism"),
];

const CALLER: &str = "the caller decides it";
const GROUP: &str = "this client is in no consumer group";
const QUEUE: &str =
    "there is no queue: what is fetched is handed out at once, within the caller's byte budget";
const WRITER: &str = "batches are written as they came, in transactions of the caller";
const CODEC: &str = "batches keep the codec of their source";
const OWN: &str = "it steers librdkafka itself";
const METADATA: &str = "metadata is asked for when it is needed, and for the topics that are read";
const ALWAYS: &str = "it is always so here";
const MECHANISM: &str = "it belongs to a SASL mechanism that is refused separately";

const IGNORED: [(&str, &str); 93] = [
    ("acks", WRITER),
    (
        "allow.auto.create.topics",
        "this client never creates topics",
    ),
    (
        "api.version.fallback.ms",
        "brokers without ApiVersions are not supported",
    ),
    ("api.version.request", ALWAYS),
    (
        "api.version.request.timeout.ms",
        "socket.connection.setup.timeout.ms covers it",
    ),
    ("auto.commit.enable", GROUP),
    ("auto.commit.interval.ms", GROUP),
    (
        "auto.offset.reset",
        "an offset outside of the log is reported, never replaced",
    ),
    ("batch.num.messages", WRITER),
    ("batch.size", WRITER),
    (
        "broker.address.ttl",
        "names are resolved for every connection",
    ),
    (
        "broker.version.fallback",
        "brokers without ApiVersions are not supported",
    ),
    ("builtin.features", OWN),
    ("check.crcs", "the caller checks every batch"),
    (
        "client.dns.lookup",
        "all addresses of a name are tried in turn",
    ),
    ("client.software.name", "this client names itself"),
    ("client.software.version", "this client names itself"),
    ("compression.codec", CODEC),
    ("compression.level", CODEC),
    ("compression.type", CODEC),
    (
        "connections.max.idle.ms",
        "a connection that the broker closes is opened again when it is needed",
    ),
    ("consume.callback.max.messages", OWN),
    ("coordinator.query.interval.ms", GROUP),
    ("debug", OWN),
    ("delivery.report.only.error", WRITER),
    ("delivery.timeout.ms", WRITER),
    ("enable.auto.commit", GROUP),
    ("enable.auto.offset.store", GROUP),
    ("enable.gapless.guarantee", WRITER),
    ("enable.idempotence", WRITER),
    (
        "enable.metrics.push",
        "this client sends no metrics to brokers",
    ),
    (
        "enable.partition.eof",
        "every answer says where the log ends",
    ),
    ("enable.random.seed", OWN),
    ("enable.sparse.connections", ALWAYS),
    ("fetch.queue.backoff.ms", QUEUE),
    ("group.id", GROUP),
    ("group.instance.id", GROUP),
    ("group.protocol", GROUP),
    ("group.protocol.type", GROUP),
    ("group.remote.assignor", GROUP),
    ("heartbeat.interval.ms", GROUP),
    ("internal.termination.signal", OWN),
    ("isolation.level", CALLER),
    ("linger.ms", WRITER),
    ("log.connection.close", OWN),
    ("log.queue", OWN),
    ("log.thread.name", OWN),
    ("log_level", OWN),
    ("max.in.flight", "one Fetch per broker is in flight"),
    (
        "max.in.flight.requests.per.connection",
        "one Fetch per broker is in flight",
    ),
    ("max.poll.interval.ms", GROUP),
    ("max.poll.records", CALLER),
    ("message.copy.max.bytes", WRITER),
    ("message.max.bytes", WRITER),
    ("message.send.max.retries", WRITER),
    ("message.timeout.ms", WRITER),
    ("metadata.max.age.ms", METADATA),
    ("metadata.recovery.rebootstrap.trigger.ms", METADATA),
    (
        "metadata.recovery.strategy",
        "bootstrap.servers are asked again whenever no known broker answers, or one asks for it",
    ),
    ("metadata.request.timeout.ms", "socket.timeout.ms covers it"),
    ("msg_order_cmp", WRITER),
    ("offset.store.method", GROUP),
    ("offset.store.path", GROUP),
    ("offset.store.sync.interval.ms", GROUP),
    ("partition.assignment.strategy", GROUP),
    ("partitioner", WRITER),
    ("produce.offset.report", WRITER),
    ("queue.buffering.backpressure.threshold", WRITER),
    ("queue.buffering.max.kbytes", WRITER),
    ("queue.buffering.max.messages", WRITER),
    ("queue.buffering.max.ms", WRITER),
    ("queued.max.messages.kbytes", QUEUE),
    ("queued.min.messages", QUEUE),
    ("queuing.strategy", WRITER),
    (
        "reconnect.backoff.jitter.ms",
        "pauses are spread by a fifth",
    ),
    ("request.required.acks", WRITER),
    ("request.timeout.ms", WRITER),
    ("retries", WRITER),
    ("sasl.kerberos.keytab", MECHANISM),
    ("sasl.kerberos.kinit.cmd", MECHANISM),
    ("sasl.kerberos.min.time.before.relogin", MECHANISM),
    ("sasl.kerberos.principal", MECHANISM),
    ("sasl.kerberos.service.name", MECHANISM),
    ("session.timeout.ms", GROUP),
    ("share.acknowledgement.mode", GROUP),
    ("socket.blocking.max.ms", OWN),
    (
        "socket.max.fails",
        "a connection that fails once is opened anew",
    ),
    ("socket.nagle.disable", ALWAYS),
    ("statistics.interval.ms", OWN),
    ("sticky.partitioning.linger.ms", WRITER),
    ("topic.metadata.propagation.max.ms", METADATA),
    ("topic.metadata.refresh.fast.cnt", METADATA),
    ("topic.metadata.refresh.sparse", METADATA),
];

/// Prefixes of ignored names.
const IGNORED_FAMILIES: [(&str, &str); 2] = [
    ("sasl.oauthbearer.", MECHANISM),
    ("transaction", WRITER), // transaction.timeout.ms, transactional.id
];

/// Names with underscores are not text: programs set them through librdkafka's API.
const PROGRAM: &str = "only a program that calls librdkafka can set it";

const REFUSED: [(&str, &str); 25] = [
    ("default_topic_conf", PROGRAM),
    ("enabled_events", PROGRAM),
    ("https.ca.location", "it has no HTTPS client"),
    ("https.ca.pem", "it has no HTTPS client"),
    ("interceptors", "it runs no foreign code"),
    ("opaque", PROGRAM),
    ("plugin.library.paths", "it runs no foreign code"),
    ("sasl.jaas.config", "that is a property of Java's client"),
    (
        "ssl.ca.certificate.stores",
        "it reads no Windows certificate store",
    ),
    ("ssl.certificate.verify_cb", "it calls no foreign code"),
    (
        "ssl.cipher.suites",
        "its TLS library has a fixed set of safe suites",
    ),
    ("ssl.crl.location", "it does not check revocation lists"),
    (
        "ssl.curves.list",
        "its TLS library has a fixed set of curves",
    ),
    ("ssl.engine.id", "it has no OpenSSL"),
    ("ssl.engine.location", "it has no OpenSSL"),
    (
        "ssl.key.password",
        "its TLS library reads no encrypted keys",
    ),
    (
        "ssl.keystore.location",
        "it reads PEM files only, no PKCS#12",
    ),
    (
        "ssl.keystore.password",
        "it reads PEM files only, no PKCS#12",
    ),
    ("ssl.providers", "it has no OpenSSL"),
    (
        "ssl.sigalgs.list",
        "its TLS library has a fixed set of signature algorithms",
    ),
    ("ssl_ca", PROGRAM),
    ("ssl_certificate", PROGRAM),
    ("ssl_engine_callback_data", PROGRAM),
    ("ssl_key", PROGRAM),
    ("topic.blacklist", "it reads what it is told to read"),
];

/// Returns the support of the property called `name`.
#[must_use]
pub fn disposition(name: &str) -> Disposition {
    if let Some((_, name)) = ALIASES.iter().find(|(alias, _)| *alias == name) {
        return Disposition::Honoured { name };
    }
    if let Some(name) = HONOURED.iter().find(|known| **known == name) {
        return Disposition::Honoured { name };
    }
    if let Some((_, reason)) = IGNORED.iter().find(|(known, _)| *known == name) {
        return Disposition::Ignored { reason };
    }
    if let Some((_, reason)) = IGNORED_FAMILIES
        .iter()
        .find(|(start, _)| name.starts_with(start))
    {
        return Disposition::Ignored { reason };
    }
    let refused = REFUSED.iter().find(|(known, _)| *known == name);
    let reason = match refused {
        Some((_, reason)) => reason,
        None if name.ends_with("_cb") => PROGRAM,
        None => "it does not know this property",
    };
    Disposition::Refused { reason }
}

#[cfg(test)]
mod tests {
    use super::{HONOURED, IGNORED, REFUSED, disposition};

    #[test]
    fn no_property_has_two_fates() {
        let mut names: Vec<&str> = HONOURED.to_vec();
        names.extend(IGNORED.iter().chain(&REFUSED).map(|(name, _)| *name));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn an_unknown_property_is_refused_and_not_overlooked() {
        assert!(matches!(
            disposition("made.up"),
            super::Disposition::Refused {
                reason: "it does not know this property"
            }
        ));
    }
}

//! A Kafka client: connections to brokers, a Fetch client that returns whole record batches, and a transactional
//! producer that sends them.
//!
//! README.md of the crate introduces it; `examples/` has programs that read and write.
//!
//! # Design
//!
//! * **One thread, one poll(2).** No runtime and no thread: a process that uses the client may fork, be killed, or hold a
//!   lock only for a bounded time.
//! * **Decide in pure code, act at the edge.** `wire`, `protocol`, `handshake`, `in_flight`, `scram`, [`Metadata`],
//!   `fetch::state`, [`fetch_session`] and [`transaction_state`] turn bytes, facts and time into bytes and decisions.
//!   Only `socket`, `network`, [`Client`], [`Fetcher`] and [`TransactionalProducer`] touch sockets, and only [`Clock`]
//!   reads time.
//! * **Every wait has an end.** Operations take a deadline; connections and requests have their own.
//! * **Broker data is not trusted.** Lengths are checked before memory is allocated, frames have a largest size, and a
//!   violation is an [`Error`] with a fix. No input causes a panic.
//! * **Batches stay whole.** `eomirror_batch` reads, rewrites and writes their bytes; this crate moves them.
//! * **Secrets stay inside.** [`Secret`] prints as `***`.
//!
//! # Not supported
//!
//! Kerberos, OAUTHBEARER tokens over HTTPS (OIDC) and PKCS#12 key stores: [`Properties::parse`] refuses them by name,
//! so that the caller can use librdkafka.

#![forbid(unsafe_code)]

mod admin;
mod append;
mod backoff;
mod client;
mod clock;
mod connection;
mod error;
pub mod error_code;
mod features;
mod fetch;
pub mod fetch_session;
mod frame;
mod handshake;
mod hanging;
mod in_flight;
mod metadata;
mod network;
mod oauth;
#[doc(hidden)]
pub mod probe;
mod properties;
mod protocol;
mod rights;
mod scram;
mod secret;
mod socket;
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;
mod tls;
mod topic;
mod transaction;
pub mod transaction_state;
#[cfg(test)]
#[path = "../tests/support/two_brokers.rs"]
mod two_brokers;
mod wire;

/// Name by which the client introduces itself to brokers, and its client id unless `client.id` is set.
pub(crate) const NAME: &str = env!("CARGO_PKG_NAME");

pub use client::{Client, ListedOffset, OffsetSpec};
pub use clock::{Clock, SystemClock};
pub use error::{Error, Kind, UnsupportedProperty};
pub use error_code::{ErrorCode, Meaning};
pub use fetch::{
    Assignment, FetchedPartition, FetchedRecords, Fetcher, Limits, LogBounds, Outcome,
    StalledPartition, Stop,
};
pub use hanging::{
    FoundBatch, HangingTransactions, OpenProducer, OpenTransaction, RecordState, Writer,
};
pub use metadata::{Endpoint, Metadata, PartitionFacts, TopicFacts};
pub use network::{Network, Throttled, Traffic, wait, wait_unless};
pub use oauth::{Token, TokenSource};
pub use properties::{Disposition, Properties, disposition};
pub use protocol::IsolationLevel;
pub use protocol::client_quotas::{ClientQuota, QuotaChange, QuotaEntity};
pub use rights::AskedRight;
pub use secret::Secret;
pub use topic::{TopicId, TopicPartition};
pub use transaction::{
    Acknowledgement, ProducerSettings, Protocol, SourceRange, TRANSACTION_VERSION,
    TransactionalProducer,
};
pub use transaction_state::Identity;

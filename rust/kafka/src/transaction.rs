//! Writing whole record batches in transactions (protocols V1, KIP-98, and V2, KIP-890).

mod coordinator_requests;
mod group_offsets;
mod metadata_refresh;
mod produce_requests;
mod producer;
mod wake_up;

use std::time::Duration;

use crate::transaction_state::Acknowledged;

use crate::properties::Properties;
use crate::topic::TopicPartition;

pub use crate::transaction_state::{Protocol, SourceRange};
pub use producer::{TRANSACTION_VERSION, TransactionalProducer};

/// A batch in the target's log, visible once its transaction is committed.
pub type Acknowledgement = Acknowledged<TopicPartition>;

/// Identity and limits of a producer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerSettings {
    /// Protocol of its transactions; V2 needs a cluster with `transaction.version` 2.
    pub protocol: Protocol,
    /// Identifies the producer across restarts: the last one to open it fences the others.
    pub transactional_id: String,
    /// Time after which the coordinator aborts an open transaction; brokers refuse more than
    /// `transaction.max.timeout.ms`.
    pub transaction_timeout: Duration,
    /// Bytes of unacknowledged batches at which [`TransactionalProducer::room`] is used up.
    pub budget: usize,
    /// Bytes in one request, beyond its first batch. Brokers refuse more than `socket.request.max.bytes` (100 MiB).
    pub request_bytes: usize,
    /// Time that a leader may wait for its followers before it reports an error.
    pub request_timeout: Duration,
}

impl ProducerSettings {
    /// Returns settings of 15 s, 16 MiB and 4 MiB. Twice the budget takes a tenth less CPU for records of 1 kB,
    /// and 15 MiB more.
    #[must_use]
    pub fn new(transactional_id: impl Into<String>, properties: &Properties) -> Self {
        Self {
            protocol: Protocol::V2,
            transactional_id: transactional_id.into(),
            transaction_timeout: Duration::from_secs(15),
            budget: 16 * 1024 * 1024,
            request_bytes: 4 * 1024 * 1024,
            request_timeout: properties.request_timeout,
        }
    }
}

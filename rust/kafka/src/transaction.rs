//! Writing whole record batches in transactions (protocol V2, KIP-890).

mod coordinator_requests;
mod metadata_refresh;
mod produce_requests;
mod producer;
mod wake_up;

use std::time::Duration;

use eomirror_core::transaction::Acknowledged;

use crate::properties::Properties;
use crate::topic::TopicPartition;

pub use eomirror_core::transaction::SourceRange;
pub use producer::TRANSACTIONS_V2;
pub use producer::TransactionalProducer;

/// A batch that is in the target's log, visible when its transaction is committed.
pub type Acknowledgement = Acknowledged<TopicPartition>;

/// Whose transactions, and how much at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerSettings {
    /// Names the producer across restarts: whoever opens it last fences the others.
    pub transactional_id: String,
    /// How long the coordinator lets a transaction be open before it aborts it; brokers refuse more than their
    /// `transaction.max.timeout.ms`.
    pub transaction_timeout: Duration,
    /// Bytes of batches that may be unacknowledged before [`TransactionalProducer::room`] is used up.
    pub budget: usize,
    /// Bytes in one request, beyond its first batch. Brokers refuse more than `socket.request.max.bytes` (100 MiB).
    pub request_bytes: usize,
    /// How long a leader may wait for its followers before it says so.
    pub request_timeout: Duration,
}

impl ProducerSettings {
    /// 15 s, 16 MiB and 4 MiB. Twice as much takes a tenth less CPU at 1 kB (bench/README), and 15 MiB more of each lane.
    #[must_use]
    pub fn new(transactional_id: impl Into<String>, properties: &Properties) -> Self {
        Self {
            transactional_id: transactional_id.into(),
            transaction_timeout: Duration::from_secs(15),
            budget: 16 * 1024 * 1024,
            request_bytes: 4 * 1024 * 1024,
            request_timeout: properties.request_timeout,
        }
    }
}

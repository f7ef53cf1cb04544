//! One lane of a mirror: from the source's partitions into transactions on the target, on one thread and one poll(2).
//!
//! ```text
//!   source           at hand            flying                 target
//!   Fetch  ------>  Relay (pure)  --->  Produce  ----------->  acknowledged, booked
//!     ^                                                              |
//!     +--- the next Fetch is on its way meanwhile                    v   settle(): the books balance
//!                                                               state records, EndTxn
//! ```
//!
//! # What holds
//!
//! * A partition's records go into the open transaction before its position moves; the position is what
//!   [`Lane::advances`] tells, past markers, aborted ranges and empty batches (rule 4).
//! * [`Lane::settle`] tells an account only when every batch is acknowledged with its offset, and what was fetched is
//!   what was acknowledged and what was dropped on purpose (rule 7).
//! * Topics are those that [`Start`] named by id, on both sides (rule 5): records are fetched by topic id, and a
//!   transaction that went to another target topic is not settled.
//! * What is fetched and not acknowledged is bounded: [`ProducerSettings::budget`] on the way to the target, and about
//!   [`Settings::fetch_bytes`] twice (at hand, and on its way from the source). A partition that is not taken is not
//!   asked for again. So is the memory behind it: nothing more is sent while answers that the source has given take the
//!   budget and three times the second, because a batch on its way keeps all of the answer that it came in.
//! * What a transaction records of a partition is bounded: [`Lane::pump`] is full when so many gaps were left in it that
//!   its part of the offset map would grow beyond one record. One answer may bring more.
//! * Waiting calls return at their deadline and go on where they were, so that a caller can look at its signals.
//!   After a failure, [`Lane::restart`] and a new [`Lane::begin_open`] are what is left, besides [`Lane::abort`].

mod account;
mod consumer;
mod failure;
mod mover;
mod route;
mod source;
mod state_records;
mod target;
mod topic_ids;

use eomirror_core::batch;

pub use account::Account;
pub use failure::{Failure, FailureKind, Gap, RefusedBatch};
pub use mover::Lane;
pub use route::Route;
pub use source::{Advance, History, Start};
pub use state_records::OurRecord;

use eomirror_kafka::{ProducerSettings, Properties};

/// How a lane works.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The source cluster.
    pub source: Properties,
    /// The target cluster.
    pub target: Properties,
    /// Of the transactional producer.
    pub producer: ProducerSettings,
    /// Most bytes of the answers to Fetch requests that are outstanding at one time.
    pub fetch_bytes: u64,
    /// Bounds for decompressing a batch.
    pub records: batch::Limits,
}

impl Settings {
    /// 16 MiB of answers at a time, and the producer's 16 MiB.
    #[must_use]
    pub fn new(source: Properties, target: Properties, producer: ProducerSettings) -> Self {
        Self {
            source,
            target,
            producer,
            fetch_bytes: 16 * 1024 * 1024,
            records: batch::Limits::default(),
        }
    }
}

/// What one call of [`Lane::pump`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pumped {
    /// Records that went into the open transaction.
    pub records: u64,
    /// Bytes of their batches, as they travel.
    pub bytes: u64,
    /// Nothing is at hand, and no partition is known to have more.
    pub drained: bool,
    /// The transaction holds as much as it may.
    pub full: bool,
}

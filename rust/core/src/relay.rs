//! Turns the bytes of a Fetch response into batches for Produce requests (native plane).
//!
//! # Decision per batch
//!
//! ```text
//! incomplete, or wrong checksum?         stop before it and name it
//! marker, aborted, without records?      skip; the position moves past it
//! written by the reverse link?           drop the whole batch, by its producer id
//! one of these?                          re-encode: its records go into new batches
//!   - it begins before the position, or extends past the end
//!   - compaction left gaps
//!   - log append times, and a target that keeps producers' timestamps
//!   - larger than the target accepts
//!   - every record gets a provenance header, or one with its place on the source
//!   - the transform may change a record, or drops one of them
//!   - records are placed by key: its records go into one batch per target partition
//!   - the loop guard drops one of its records
//! small, and a neighbour that is small or re-encoded?    re-encode both into one
//! otherwise                              pass: its body under a new header, nothing is copied
//! ```
//!
//! Merging matters because a Produce request takes one batch per partition: batches of ten records would need a request
//! each. A small batch between two large ones is passed, because merging it gains nothing.
//!
//! # Guarantees of every call
//!
//! * Records keep their order within a target partition. Each is sent once or counted under a [`crate::DropReason`]; the [`Accounting`] is
//!   checked before it is returned (rule 7).
//! * No batch is larger than [`Target::max_batch_bytes`].
//! * A call returns at most [`Target::most_runs`] runs of source offsets; the rest of the response is fetched again. A
//!   compacted, well compressed log can have millions of runs in one response. Each is a range of the offset map, and
//!   the map goes into one record of the transaction.
//! * No input causes a panic. Memory is limited by [`eomirror_batch::Limits`] and [`Target`]. An error is returned in
//!   [`Relayed::stopped`], together with all batches before it.
//! * Producer and sequence are written when a batch is sent: [`Outgoing::stamp`].
//!
//! # Source
//!
//! Broker behaviour was tested on Kafka 4.3. A broker rejects a batch whose offsets are not consecutive
//! (`INVALID_RECORD`), rejects or ignores the timestamp type of a produced batch, and compares `max.message.bytes` with
//! the compressed batch. The `read_committed` reader follows KIP-98.

mod accounting;
mod error;
mod fetched;
mod merge;
mod outgoing;
mod pass;
mod split;
mod stop;
mod target;
mod topic_policy;

use std::fmt;
use std::ops::Range;

use eomirror_batch::{BatchError, BatchWriter, Codec, HEADER_SIZE, Limits, Memory, OpenBatch};
use merge::{Buffers, Merge};
use pass::{Pass, Progress};
use stop::{Before, Source};

pub use accounting::{Accounting, Relayed, Skipped};
pub use error::RelayError;
pub use fetched::{Fetched, Holes};
pub use outgoing::{Content, Outgoing, SourceRun};
pub use target::Target;
pub use topic_policy::TopicPolicy;

/// Working memory of the relay; one per thread.
pub struct Relay {
    limits: Limits,
    memory: Memory,
    split: Memory,
    writer: BatchWriter,
    /// By target partition, where records are placed by key.
    parked: Vec<OpenBatch>,
    provenance: Vec<u8>,
    producer_id: Option<i64>,
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl Relay {
    /// Returns a relay that decompresses batches within `limits`.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            memory: Memory::default(),
            split: Memory::default(),
            writer: BatchWriter::new(Codec::None),
            parked: Vec::new(),
            provenance: Vec::new(),
            producer_id: None,
        }
    }

    /// Sets the target's producer that will send the relayed batches. Written headers carry its mark; without an id
    /// they carry none. Sent by another producer, a marked record would look like a copy that an application made.
    pub const fn write_as(&mut self, producer_id: Option<i64>) {
        self.producer_id = producer_id;
    }

    /// Relays `fetched`, the bytes of `partition` of the policy's source topic.
    pub fn relay(
        &mut self,
        policy: &TopicPolicy,
        partition: i32,
        target: &Target,
        fetched: &Fetched<'_>,
    ) -> Relayed {
        self.relay_with_holes(policy, partition, target, fetched, Holes::Count)
    }

    /// Relays like [`Relay::relay`], with a choice of how to treat holes in the log.
    pub fn relay_with_holes(
        &mut self,
        policy: &TopicPolicy,
        partition: i32,
        target: &Target,
        fetched: &Fetched<'_>,
        holes: Holes,
    ) -> Relayed {
        let source = Source { policy, partition };
        let (mut most, mut offsets) = (usize::MAX, fetched.offsets.clone());
        let (mut whole, mut stopped) = (true, None);
        loop {
            let pass = self.begin(source, target, offsets.clone(), holes);
            match pass.run(fetched, most) {
                Ok(mut relayed) => {
                    if !whole {
                        relayed.partial = None;
                    }
                    relayed.stopped = stopped;
                    return relayed;
                }
                // Batches that were started before the error may hold records past it, so the pass is repeated up to
                // that place. Each round ends before the previous one.
                Err(stop) => {
                    match stop.before {
                        Before::Batch(index) if index < most => most = index,
                        Before::Record(offset) if offset < offsets.end => offsets.end = offset,
                        _ => return nothing(offsets.start, stop.error),
                    }
                    (whole, stopped) = (false, stop.error);
                }
            }
        }
    }

    /// Splits a batch that the target rejected as too large into two. A single record cannot be split: the error names
    /// it. `fetched` are the bytes that the batch was made of.
    pub fn halve(
        &mut self,
        policy: &TopicPolicy,
        partition: i32,
        batch: &Outgoing,
        fetched: &[u8],
    ) -> Result<[Outgoing; 2], RelayError> {
        let topic = policy.source_topic();
        let (whole, limits) = match batch.content() {
            Content::Written(bytes) => (Some(&bytes[..]), split::OURS),
            // the source's header precedes the body
            Content::Passed { body, .. } => {
                let start = body.start.checked_sub(HEADER_SIZE);
                let whole = start.and_then(|start| fetched.get(start..body.end));
                (whole, self.limits)
            }
        };
        let error = |error| RelayError::batch(topic, partition, error);
        let whole = whole.ok_or_else(|| {
            error(BatchError::Unwritable {
                reason: "it was not made from these bytes".to_owned(),
            })
        })?;
        let part = (batch.partition(), batch.runs());
        split::in_two(whole, part, &mut self.split, limits)
            .map_err(error)?
            .ok_or_else(|| {
                let offset = batch.first_offset();
                RelayError::too_large(topic, partition, offset, batch.size(), None)
            })
    }

    /// Takes back the buffer of a batch that the target has acknowledged.
    pub fn give_back(&mut self, batch: Outgoing) {
        if let Content::Written(bytes) = batch.into_content() {
            self.writer.give_back(bytes);
        }
    }

    fn begin<'w, 'a>(
        &'w mut self,
        source: Source<'w>,
        target: &'w Target,
        offsets: Range<i64>,
        holes: Holes,
    ) -> Pass<'w, 'a> {
        Pass {
            source,
            target,
            limits: self.limits,
            offsets,
            author: source.policy.author(self.producer_id),
            holes,
            memory: &mut self.memory,
            provenance: &mut self.provenance,
            merge: Merge::new(
                source,
                target,
                Buffers {
                    writer: &mut self.writer,
                    parked: &mut self.parked,
                    memory: &mut self.split,
                },
            ),
            progress: Progress::default(),
        }
    }
}

fn nothing(position: i64, error: Option<RelayError>) -> Relayed {
    Relayed {
        batches: Vec::new(),
        accounting: Accounting::default(),
        skipped: Skipped::default(),
        mark: None,
        holes: Vec::new(),
        missing: 0,
        compacted: false,
        next_position: position,
        looked_to: -1,
        leader_epoch: -1,
        max_timestamp: -1,
        partial: None,
        stopped: error,
    }
}

//! Which batches the native plane sends: the bytes of a Fetch answer become batches for Produce requests.
//!
//! # One batch, step by step
//!
//! ```text
//! whole, checksum right?                 no: stop before it, with its name
//! marker, aborted, without records?      skip; the position goes on behind it
//! written by the opposite link?          drop it whole, by its producer id
//! one of these?                          re-encode: new batches of its records
//!   - it begins before the position, or reaches beyond the end
//!   - compaction left gaps
//!   - the log's append times, and a target that keeps the producers' times
//!   - larger than the target takes
//!   - every record gets a provenance header
//!   - the loop guard drops one of its records
//! small, and a neighbour that is small or re-encoded?    re-encode both into one
//! otherwise                              pass: its body under a new header, nothing is copied
//! ```
//!
//! Merging is not a luxury: a Produce request takes one batch of a partition, so batches of ten records would cost a
//! request each. A small batch between two large ones is passed, since there is nothing to win.
//!
//! # What holds for every call
//!
//! * Records leave in their order, each once, or are counted under a [`crate::DropReason`]; [`Accounting`] are checked
//!   before they are handed out (rule 7).
//! * No batch is larger than [`Target::max_batch_bytes`].
//! * One call gives at most [`Target::most_runs`] runs of source offsets; what is left of the answer is fetched again. Where
//!   compaction left gaps everywhere, an answer of well compressed records has millions, and each is a range of the
//!   offset map, which goes into one record of the transaction.
//! * Whatever stands in the bytes: no panic, and memory as [`crate::batch::Limits`] and [`Target`] say. What cannot go
//!   on is [`Relayed::stopped`], and all before it is there.
//! * Who sends a batch, and where it stands in that producer's sequence, is written when it is sent:
//!   [`Outgoing::stamp`].
//!
//! # Source
//!
//! What brokers accept was tested on Kafka 4.3: a batch whose offsets are not consecutive is refused
//! (`INVALID_RECORD`); the timestamp type in a produced batch is refused or ignored; `max.message.bytes` is compared
//! with the batch as it is sent, compressed. The `read_committed` reader is KIP-98's.

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

use crate::batch::{BatchError, BatchWriter, Codec, HEADER_SIZE, Limits, Memory};
use merge::Merge;
use pass::{Pass, Progress};
use stop::{Before, Source};

pub use accounting::{Accounting, Relayed, Skipped};
pub use error::RelayError;
pub use fetched::{Fetched, Holes};
pub use outgoing::{Content, Outgoing, SourceRun};
pub use target::Target;
pub use topic_policy::TopicPolicy;

/// Working memory of the relay; one for each thread.
pub struct Relay {
    limits: Limits,
    memory: Memory,
    split: Memory,
    writer: BatchWriter,
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
    /// A relay that decompresses no batch beyond `limits`.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            memory: Memory::default(),
            split: Memory::default(),
            writer: BatchWriter::new(Codec::None),
            provenance: Vec::new(),
            producer_id: None,
        }
    }

    /// Names the producer on the target that will send what is relayed from here on. Headers that are written carry its
    /// mark; they carry none while it is not known. Sent by another producer, a marked record would look like a copy that
    /// an application made.
    pub const fn write_as(&mut self, producer_id: Option<i64>) {
        self.producer_id = producer_id;
    }

    /// What is to be sent of `fetched`, the bytes of `partition` of the policy's source topic.
    pub fn relay(
        &mut self,
        policy: &TopicPolicy,
        partition: i32,
        target: &Target,
        fetched: &Fetched<'_>,
    ) -> Relayed {
        self.relay_with_holes(policy, partition, target, fetched, Holes::Count)
    }

    /// As [`Relay::relay`], of a log that may be known to have no holes.
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
                // Batches that were begun before the error was met may hold records behind it, so all is done again up
                // to there. Each round ends before the one before it.
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

    /// Two batches of the records of one that the target has refused as too large. A single record cannot be halved:
    /// the error names it. `fetched` are the bytes that the batch was made of.
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
            // under the source's header, which lies before the body
            Content::Passed { body, .. } => {
                let start = body.start.checked_sub(HEADER_SIZE);
                let whole = start.and_then(|start| fetched.get(start..body.end));
                (whole, self.limits)
            }
        };
        let error = |error| RelayError::batch(topic, partition, error);
        let whole = whole.ok_or_else(|| {
            error(BatchError::Unwritable {
                reason: "it was not made of these bytes".to_owned(),
            })
        })?;
        split::in_two(whole, batch.runs(), &mut self.split, limits)
            .map_err(error)?
            .ok_or_else(|| {
                let offset = batch.first_offset();
                RelayError::too_large(topic, partition, offset, batch.size(), None)
            })
    }

    /// Takes back the memory of a batch that the target has acknowledged.
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
            merge: Merge::new(source, target, &mut self.writer, &mut self.split),
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

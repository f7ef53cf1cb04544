//! What a link does with the records of one topic.

use std::collections::HashSet;

use crate::batch::Record;
use crate::error::Error;
use crate::header;
use crate::loop_guard::{self, LoopGuard};
use crate::types::{DropReason, HeaderRef, RecordRef};

/// Where a provenance header holds the check over key and value; the layout keeps it there in every version.
const CHECK: std::ops::Range<usize> = 3..7;

/// What is done with the records of one topic, on all of its partitions.
#[derive(Debug, Clone)]
pub struct Treatment {
    source_topic: String,
    target_topic: String,
    guard: LoopGuard,
    header: bool,
    opposite: HashSet<i64>,
    local: Local,
}

/// What a record without a provenance header gets; all of them the same, so it is decided once.
#[derive(Debug, Clone)]
enum Local {
    /// The header's value; the check is still to be written for each record.
    Keep(Vec<u8>),
    Drop(DropReason),
}

/// How much of a batch has to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// The batch header.
    Header,
    /// Every record.
    Read,
    /// Every record, and it is changed.
    Write,
}

/// What happens to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    Keep(Change),
    Drop(DropReason),
}

/// How a record that goes on differs from what was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    /// It has a header more, the last one.
    Append,
    /// It has this header, the last one, instead of those of the same name.
    Replace,
}

impl Treatment {
    /// For records that are read from `source_topic` and written to `target_topic`.
    ///
    /// `guard` judges every record if it is enforced. With `header` every record gets a provenance header. Batches of
    /// the producer ids in `opposite` come from the target: they are dropped whole, whatever the guard. Where all
    /// that comes from the target can be told this way, a guard that is not enforced lets the others pass unread.
    pub fn new(
        source_topic: &str,
        target_topic: &str,
        guard: LoopGuard,
        header: bool,
        opposite: HashSet<i64>,
    ) -> Result<Self, Error> {
        let bare = RecordRef {
            topic: source_topic,
            partition: 0,
            offset: 0,
            leader_epoch: -1,
            timestamp: -1,
            key: None,
            value: None,
            headers: &[],
        };
        let local = match guard.judge(&bare)? {
            loop_guard::Verdict::Keep(provenance) => {
                Local::Keep(provenance.encode(target_topic, None, None))
            }
            loop_guard::Verdict::Drop(reason) => Local::Drop(reason),
        };
        Ok(Self {
            source_topic: source_topic.to_owned(),
            target_topic: target_topic.to_owned(),
            guard,
            header,
            opposite,
            local,
        })
    }

    /// Where records are read.
    #[must_use]
    pub fn source_topic(&self) -> &str {
        &self.source_topic
    }

    /// Where records are written.
    #[must_use]
    pub fn target_topic(&self) -> &str {
        &self.target_topic
    }

    pub(super) fn need(&self) -> Need {
        if self.header {
            Need::Write
        } else if self.guard.enforced() {
            Need::Read
        } else {
            Need::Header
        }
    }

    /// Whether a batch of this producer was written by the link from the target.
    pub(super) fn is_opposite(&self, producer_id: i64) -> bool {
        producer_id >= 0 && self.opposite.contains(&producer_id)
    }

    /// Decides about `record`. The value of a header that it gets is left in `value`.
    pub(super) fn decide(
        &self,
        record: &Record<'_>,
        partition: i32,
        value: &mut Vec<u8>,
    ) -> Result<Decision, Error> {
        if self.need() == Need::Header {
            return Ok(Decision::Keep(Change::Nothing));
        }
        let ours = |header: HeaderRef<'_>| header.key == header::NAME.as_bytes();
        if !record.headers.clone().any(ours) {
            return Ok(self.local(record, value));
        }
        let headers: Vec<_> = record.headers.clone().collect();
        let record = record.at(&self.source_topic, partition, -1, &headers);
        Ok(match self.guard.judge(&record)? {
            loop_guard::Verdict::Drop(reason) => Decision::Drop(reason),
            loop_guard::Verdict::Keep(provenance) if self.header => {
                *value = provenance.encode(&self.target_topic, record.key, record.value);
                Decision::Keep(Change::Replace)
            }
            loop_guard::Verdict::Keep(_) => Decision::Keep(Change::Nothing),
        })
    }

    fn local(&self, record: &Record<'_>, value: &mut Vec<u8>) -> Decision {
        match &self.local {
            Local::Drop(reason) => Decision::Drop(*reason),
            Local::Keep(template) if self.header => {
                value.clear();
                value.extend_from_slice(template);
                let check = header::check(record.key, record.value).to_be_bytes();
                if let Some(place) = value.get_mut(CHECK) {
                    place.copy_from_slice(&check);
                }
                Decision::Keep(Change::Append)
            }
            Local::Keep(_) => Decision::Keep(Change::Nothing),
        }
    }
}

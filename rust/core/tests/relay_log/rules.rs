//! A link's decisions about records, in a direct implementation.

use std::collections::HashSet;

use eomirror_core::header::{NAME, Writer};
use eomirror_core::loop_guard::{LoopGuard, Verdict};
use eomirror_core::relay::TopicPolicy;
use eomirror_core::{DropReason, HeaderRef, RecordRef, Written};
use proptest::prelude::*;

use super::{Expected, OPPOSITE, TARGET_TOPIC, TOPIC};
use crate::batch_forge::Plain;

/// The switches of a policy.
// four options of a link, in all combinations
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) header: bool,
    pub(crate) enforced: bool,
    pub(crate) local_only: bool,
    pub(crate) opposite: bool,
    /// Producer id that the headers carry as a mark.
    pub(crate) writer: Option<i64>,
}

impl Rules {
    pub(crate) const NONE: Self = Self {
        header: false,
        enforced: false,
        local_only: false,
        opposite: false,
        writer: None,
    };

    fn guard(&self) -> LoopGuard {
        let origins = self
            .local_only
            .then(|| HashSet::from(["source".to_owned()]));
        LoopGuard::new("source", "target", origins, self.enforced).unwrap()
    }

    pub(crate) fn policy(&self) -> TopicPolicy {
        let opposite = self.opposite.then_some(OPPOSITE).into_iter().collect();
        TopicPolicy::new(TOPIC, TARGET_TOPIC, self.guard(), self.header, opposite).unwrap()
    }

    /// Returns true if the record is kept and carries the provenance header of another one.
    pub(crate) fn is_copied(&self, entry: &Expected) -> bool {
        let unread =
            !self.header && !self.enforced || self.opposite && entry.producer_id == OPPOSITE;
        let headers = entry.record.header_refs();
        !unread && matches!(self.judge(entry, &headers), Verdict::Copied(_))
    }

    fn judge(&self, entry: &Expected, headers: &[HeaderRef<'_>]) -> Verdict {
        let record = RecordRef {
            topic: TOPIC,
            partition: 0,
            offset: entry.record.offset,
            leader_epoch: 0,
            timestamp: entry.record.timestamp,
            key: entry.record.key.as_deref(),
            value: entry.record.value.as_deref(),
            headers,
            written: Written::By(entry.producer_id),
        };
        self.guard().judge(&record).unwrap()
    }

    /// Returns the record as this partition of the target should have it, or the reason to drop it.
    pub(crate) fn apply(&self, entry: &Expected, partition: i32) -> Result<Plain, DropReason> {
        let record = &entry.record;
        if self.opposite && entry.producer_id == OPPOSITE {
            return Err(DropReason::Hop);
        }
        if !self.header && !self.enforced {
            return Ok(record.clone());
        }
        let headers = record.header_refs();
        let provenance = match self.judge(entry, &headers) {
            Verdict::Drop(reason) => return Err(reason),
            Verdict::Keep(provenance) | Verdict::Copied(provenance) => provenance,
        };
        let mut record = record.clone();
        if self.header {
            record.headers.retain(|(name, _)| name != NAME.as_bytes());
            let mark = self
                .writer
                .and_then(|id| Writer::new("target", id))
                .map(|writer| writer.mark(partition, record.timestamp));
            let value = provenance.encode(
                TARGET_TOPIC,
                record.key.as_deref(),
                record.value.as_deref(),
                mark.as_ref(),
            );
            record.headers.push((NAME.into(), Some(value)));
        }
        Ok(record)
    }
}

pub(crate) fn rules() -> impl Strategy<Value = Rules> {
    let writer = proptest::option::of(0..=i64::MAX);
    let switches = proptest::array::uniform4(any::<bool>());
    (switches, writer).prop_map(|([header, enforced, local_only, opposite], writer)| Rules {
        header,
        enforced,
        local_only,
        opposite,
        writer,
    })
}

//! What a link does with records, and the same decisions made the plain way.

use std::collections::HashSet;

use eomirror_core::header::NAME;
use eomirror_core::loop_guard::{LoopGuard, Verdict};
use eomirror_core::relay::Treatment;
use eomirror_core::{DropReason, RecordRef};
use proptest::prelude::*;

use super::{Expected, OPPOSITE, TARGET_TOPIC, TOPIC};
use crate::batch_forge::Plain;

/// The switches of a treatment.
// four switches that a link has, in all combinations
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) header: bool,
    pub(crate) enforced: bool,
    pub(crate) local_only: bool,
    pub(crate) opposite: bool,
}

impl Rules {
    pub(crate) const NONE: Self = Self {
        header: false,
        enforced: false,
        local_only: false,
        opposite: false,
    };

    fn guard(&self) -> LoopGuard {
        let origins = self
            .local_only
            .then(|| HashSet::from(["source".to_owned()]));
        LoopGuard::new("source", "target", origins, self.enforced).unwrap()
    }

    pub(crate) fn treatment(&self) -> Treatment {
        let opposite = self.opposite.then_some(OPPOSITE).into_iter().collect();
        Treatment::new(TOPIC, TARGET_TOPIC, self.guard(), self.header, opposite).unwrap()
    }

    /// The record as the target should have it, or why it should not.
    pub(crate) fn apply(&self, entry: &Expected) -> Result<Plain, DropReason> {
        let record = &entry.record;
        if self.opposite && entry.producer_id == OPPOSITE {
            return Err(DropReason::Hop);
        }
        if !self.header && !self.enforced {
            return Ok(record.clone());
        }
        let headers = record.header_refs();
        let view = RecordRef {
            topic: TOPIC,
            partition: 0,
            offset: record.offset,
            leader_epoch: 0,
            timestamp: record.timestamp,
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers: &headers,
        };
        let provenance = match self.guard().judge(&view).unwrap() {
            Verdict::Drop(reason) => return Err(reason),
            Verdict::Keep(provenance) => provenance,
        };
        let mut record = record.clone();
        if self.header {
            record.headers.retain(|(name, _)| name != NAME.as_bytes());
            let value = provenance.encode(TARGET_TOPIC, view.key, view.value);
            record.headers.push((NAME.into(), Some(value)));
        }
        Ok(record)
    }
}

pub(crate) fn rules() -> impl Strategy<Value = Rules> {
    (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(header, enforced, local_only, opposite)| Rules {
            header,
            enforced,
            local_only,
            opposite,
        },
    )
}

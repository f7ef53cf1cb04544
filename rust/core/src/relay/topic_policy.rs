//! Policy of a link for the records of one topic.

use std::collections::HashSet;

use crate::error::Error;
use crate::header::{self, Provenance, Template, Writer};
use crate::loop_guard::{LoopGuard, Verdict};
use crate::origin::Origin;
use crate::transform::TopicTransform;
use crate::types::{DropReason, HeaderRef, RecordRef, Written};
use eomirror_batch::Record;

/// Policy for the records of one topic, on all of its partitions.
#[derive(Debug, Clone)]
pub struct TopicPolicy {
    source_topic: String,
    target_topic: String,
    guard: LoopGuard,
    header: bool,
    opposite: HashSet<i64>,
    local: Local,
    origin: Option<Origin>,
    transform: Option<TopicTransform>,
}

/// Decision for records without a provenance header. It is equal for all of them, so it is made once.
#[derive(Debug, Clone)]
enum Local {
    Keep(Provenance),
    Drop(DropReason),
}

/// Writer of the relayed records.
#[derive(Debug, Clone)]
pub(super) struct Author {
    writer: Option<Writer>,
    /// Template of the header for records that have none.
    local: Option<Template>,
}

/// Partitions and producer of a record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// Partition of the source.
    pub(super) partition: i32,
    /// Partition of the target.
    pub(super) target: i32,
    /// Producer id of the batch.
    pub(super) producer_id: i64,
}

/// Part of a batch that must be examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// Only the batch header.
    Header,
    /// Every record.
    Read,
    /// Every record, and each is changed.
    Write,
}

/// Decision for a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    Keep(Change),
    /// Kept as a local record: its provenance header was written for another record.
    Copied(Change),
    Drop(DropReason),
}

/// Change to a kept record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    /// Appends a header.
    Append,
    /// Replaces headers of the same name by one, as the last.
    Replace,
}

impl TopicPolicy {
    /// Returns the policy for records that are read from `source_topic` and written to `target_topic`.
    ///
    /// `guard` judges every record if it is enforced. With `header` every record gets a provenance header. Batches of
    /// the producer ids in `opposite` come from the target and are dropped whole, whatever the guard decides. If the
    /// ids cover everything that comes from the target, a guard that is not enforced lets all other batches pass
    /// unread.
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
            written: Written::Unknown,
        };
        let local = match guard.judge(&bare)? {
            Verdict::Keep(provenance) | Verdict::Copied(provenance) => Local::Keep(provenance),
            Verdict::Drop(reason) => Local::Drop(reason),
        };
        Ok(Self {
            source_topic: source_topic.to_owned(),
            target_topic: target_topic.to_owned(),
            guard,
            header,
            opposite,
            local,
            origin: None,
            transform: None,
        })
    }

    /// Adds the header [`crate::origin`] to every kept record, with the alias of the source cluster.
    #[must_use]
    pub fn with_origin(mut self, alias: &str) -> Self {
        self.origin = Some(Origin::new(alias, &self.source_topic));
        self
    }

    /// Applies the rules of a transform to every record. They see records before a provenance header is added, so such
    /// a link has neither the header nor an enforced guard.
    #[must_use]
    pub fn with_transform(mut self, transform: Option<TopicTransform>) -> Self {
        self.transform = transform;
        self
    }

    /// Returns the rules of the transform for the topic, if there are any.
    pub(super) fn transform(&self) -> Option<&TopicTransform> {
        self.transform.as_ref()
    }

    /// Returns the writer of the header with the place of records on the source, if they get one.
    pub(super) fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    /// Returns the source topic.
    #[must_use]
    pub fn source_topic(&self) -> &str {
        &self.source_topic
    }

    /// Returns the target topic.
    #[must_use]
    pub fn target_topic(&self) -> &str {
        &self.target_topic
    }

    /// Returns true if every kept record gets a provenance header.
    #[must_use]
    pub fn writes_header(&self) -> bool {
        self.header
    }

    pub(super) fn need(&self) -> Need {
        let transform = self.transform.as_ref();
        if self.header || self.origin.is_some() || transform.is_some_and(TopicTransform::changes) {
            Need::Write
        } else if self.guard.enforced() || transform.is_some() {
            Need::Read
        } else {
            Need::Header
        }
    }

    /// Returns true if the reverse link wrote batches of this producer.
    pub(super) fn is_opposite(&self, producer_id: i64) -> bool {
        producer_id >= 0 && self.opposite.contains(&producer_id)
    }

    /// Returns the author for a producer id on the target.
    pub(super) fn author(&self, producer_id: Option<i64>) -> Author {
        let writer = producer_id.and_then(|id| Writer::new(self.guard.target(), id));
        let local = match &self.local {
            Local::Keep(provenance) if self.header => Some(Template::new(
                provenance,
                &self.target_topic,
                writer.as_ref(),
            )),
            _ => None,
        };
        Author { writer, local }
    }

    /// Decides about `record`. Writes the value of a new header into `value`.
    pub(super) fn decide(
        &self,
        record: &Record<'_>,
        place: Place,
        author: &Author,
        value: &mut Vec<u8>,
    ) -> Result<Decision, Error> {
        if !self.header && !self.guard.enforced() {
            return Ok(Decision::Keep(Change::Nothing));
        }
        let ours = |header: HeaderRef<'_>| header.key == header::NAME.as_bytes();
        if !record.headers.clone().any(ours) {
            return Ok(self.local(record, place.target, author, value));
        }
        let headers: Vec<_> = record.headers.clone().collect();
        let written = Written::By(place.producer_id);
        let at = (self.source_topic.as_str(), place.partition);
        let record = RecordRef::of(record, at, -1, &headers, written);
        let mut change = |provenance: &Provenance| {
            if !self.header {
                return Change::Nothing;
            }
            let mark = author
                .writer
                .map(|writer| writer.mark(place.target, record.timestamp));
            *value = provenance.encode(&self.target_topic, record.key, record.value, mark.as_ref());
            Change::Replace
        };
        Ok(match self.guard.judge(&record)? {
            Verdict::Drop(reason) => Decision::Drop(reason),
            Verdict::Keep(provenance) => Decision::Keep(change(&provenance)),
            Verdict::Copied(provenance) => Decision::Copied(change(&provenance)),
        })
    }

    fn local(
        &self,
        record: &Record<'_>,
        partition: i32,
        author: &Author,
        value: &mut Vec<u8>,
    ) -> Decision {
        match (&self.local, &author.local) {
            (Local::Drop(reason), _) => Decision::Drop(*reason),
            (Local::Keep(_), Some(template)) => {
                template.write(record.key, record.value, partition, record.timestamp, value);
                Decision::Keep(Change::Append)
            }
            (Local::Keep(_), None) => Decision::Keep(Change::Nothing),
        }
    }
}

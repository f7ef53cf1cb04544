//! What a link does with the records of one topic.

use std::collections::HashSet;

use crate::batch::Record;
use crate::error::Error;
use crate::header::{self, Provenance, Template, Writer};
use crate::loop_guard::{LoopGuard, Verdict};
use crate::types::{DropReason, HeaderRef, RecordRef, Written};

/// What is done with the records of one topic, on all of its partitions.
#[derive(Debug, Clone)]
pub struct TopicPolicy {
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
    Keep(Provenance),
    Drop(DropReason),
}

/// Who writes the records of an answer.
#[derive(Debug, Clone)]
pub(super) struct Author {
    writer: Option<Writer>,
    /// The header of a record that has none.
    local: Option<Template>,
}

/// Who wrote a record, and where it was found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) partition: i32,
    /// Of its batch.
    pub(super) producer_id: i64,
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
    /// It goes on as a local record; the provenance header that it carries was written for another one.
    Copied(Change),
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

impl TopicPolicy {
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

    /// Whether every record that goes on gets a provenance header.
    #[must_use]
    pub fn writes_header(&self) -> bool {
        self.header
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

    /// How the producer with this id on the target writes records.
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

    /// Decides about `record`. The value of a header that it gets is left in `value`.
    pub(super) fn decide(
        &self,
        record: &Record<'_>,
        place: Place,
        author: &Author,
        value: &mut Vec<u8>,
    ) -> Result<Decision, Error> {
        if self.need() == Need::Header {
            return Ok(Decision::Keep(Change::Nothing));
        }
        let ours = |header: HeaderRef<'_>| header.key == header::NAME.as_bytes();
        if !record.headers.clone().any(ours) {
            return Ok(self.local(record, place.partition, author, value));
        }
        let headers: Vec<_> = record.headers.clone().collect();
        let written = Written::By(place.producer_id);
        let record = record.at(&self.source_topic, place.partition, -1, &headers, written);
        let mut change = |provenance: &Provenance| {
            if !self.header {
                return Change::Nothing;
            }
            let mark = author
                .writer
                .map(|writer| writer.mark(record.partition, record.timestamp));
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

//! Decides about a batch of fetched records, and enters them into the ledger.
//!
//! The first pass judges every record, the second enters all of them. So a batch with one rejected record leaves the
//! ledger unchanged, and the error names that record.

use std::collections::HashMap;

use crate::client_plane::ledger::Ledger;
use crate::client_plane::route::{Route, Routes};
use crate::error::Error;
use crate::header::Writer;
use crate::loop_guard::{LoopGuard, Verdict};
use crate::placement::place;
use crate::transform::{Edited, Fate, Parts, TopicTransform, Transform};
use crate::types::{DropReason, RecordRef};

/// Policy of a link for records.
#[derive(Debug)]
pub struct Policy {
    routes: Routes,
    guard: LoopGuard,
    header: bool,
    writer: Option<Writer>,
    /// By index of the source topic; empty without a transform.
    transforms: Vec<Option<TopicTransform>>,
}

impl Policy {
    /// Returns a policy of `routes`, judged by `guard`; with `header`, kept records get a provenance header.
    #[must_use]
    pub fn new(routes: Routes, guard: LoopGuard, header: bool) -> Self {
        Self {
            routes,
            guard,
            header,
            writer: None,
            transforms: Vec::new(),
        }
    }

    /// Returns the policy for records sent by the producer with this id on the target: their headers carry its mark.
    #[must_use]
    pub fn written_by(mut self, producer_id: i64) -> Self {
        self.writer = Writer::new(self.guard.target(), producer_id);
        self
    }

    /// Applies the rules of a transform to every record. They see records before a provenance header is added, so such
    /// a link has neither the header nor an enforced guard.
    #[must_use]
    pub fn transformed_by(mut self, transform: &Transform) -> Self {
        let sources = self.routes.sources().iter();
        self.transforms = sources.map(|topic| transform.of_topic(topic)).collect();
        self
    }

    /// Returns the routes.
    #[must_use]
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Returns true if headers are read: to decide, or to extend provenance.
    fn reads_provenance(&self) -> bool {
        self.header || self.guard.enforced()
    }
}

/// Decision about one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Write it to the route's target topic.
    Keep {
        /// Source and target topic.
        route: Route,
        /// Target partition; `None` for the source partition's number.
        partition: Option<i32>,
        /// Value of the provenance header that replaces any earlier one; `None` keeps the headers unchanged.
        header: Option<Vec<u8>>,
        /// True if the record carries the provenance header of another record.
        copied: bool,
        /// Changes that the transform makes.
        edited: Edited,
    },
    /// Drop it.
    Drop(DropReason),
}

/// Decisions about a batch, in its order.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Planned {
    /// One decision per record.
    pub decisions: Vec<Decision>,
    /// Number of kept records.
    pub kept: usize,
    /// Size of the kept records' keys, values and headers in bytes, as they were read.
    pub bytes: u64,
}

/// Decides about a batch in fetch order, and enters it into `ledger`; on an error the ledger is unchanged.
///
/// librdkafka must be able to write the `records`: timestamp 0 is rejected, because `rd_kafka_produceva` interprets it
/// as "now" (librdkafka, `rd_kafka_msg_new0`).
pub fn plan(
    policy: &Policy,
    records: &[RecordRef<'_>],
    ledger: &mut Ledger,
) -> Result<Planned, Error> {
    let mut planned = Planned {
        decisions: Vec::with_capacity(records.len()),
        ..Planned::default()
    };
    let mut routed = Vec::with_capacity(records.len());
    let mut cursor = Cursor::default();
    for record in records {
        let route = cursor.route(policy, record)?;
        cursor.advance(route, record, ledger)?;
        let decision = decide(policy, route, record)?;
        if matches!(decision, Decision::Keep { .. }) {
            check_representable(record)?;
            planned.kept += 1;
            planned.bytes += record.size();
        }
        planned.decisions.push(decision);
        routed.push(route);
    }
    for ((record, route), decision) in records.iter().zip(routed).zip(&planned.decisions) {
        match decision {
            Decision::Keep {
                partition,
                copied,
                edited,
                ..
            } => {
                ledger.keep(route, record, *partition);
                ledger.changed(route, record.partition, edited);
                if *copied {
                    ledger.copied(route, record.partition);
                }
            }
            Decision::Drop(reason) => ledger.drop(route, record, *reason),
        }
    }
    Ok(planned)
}

fn decide(policy: &Policy, route: Route, record: &RecordRef<'_>) -> Result<Decision, Error> {
    let edited = match fate(policy, route, record)? {
        Fate::Keep(edited) => edited,
        Fate::Drop(reason) => return Ok(Decision::Drop(reason)),
    };
    let partition = policy
        .routes
        .count(route)
        .map(|count| place(edited.key(record.key), record.partition, count));
    if !policy.reads_provenance() {
        return Ok(Decision::Keep {
            route,
            partition,
            header: None,
            copied: false,
            edited,
        });
    }
    let (provenance, copied) = match policy.guard.judge(record)? {
        Verdict::Drop(reason) => return Ok(Decision::Drop(reason)),
        Verdict::Keep(provenance) => (provenance, false),
        Verdict::Copied(provenance) => (provenance, true),
    };
    let header = policy.header.then(|| {
        let mark = policy
            .writer
            .map(|writer| writer.mark(partition.unwrap_or(record.partition), record.timestamp));
        let topic = policy.routes.target(route);
        provenance.encode(topic, record.key, record.value, mark.as_ref())
    });
    Ok(Decision::Keep {
        route,
        partition,
        header,
        copied,
        edited,
    })
}

fn fate(policy: &Policy, route: Route, record: &RecordRef<'_>) -> Result<Fate, Error> {
    match policy.transforms.get(route.source) {
        Some(Some(transform)) => transform.apply(Parts::of(record), || record.place()),
        _ => Ok(Fate::Keep(Edited::default())),
    }
}

fn check_representable(record: &RecordRef<'_>) -> Result<(), Error> {
    if record.timestamp == 0 {
        return Err(Error::TimestampZero { at: record.place() });
    }
    Ok(())
}

/// State of the pass over a batch. Neighbours mostly share a partition, so the last one is searched first.
#[derive(Default)]
struct Cursor<'a> {
    topic: Option<(&'a str, Route)>,
    last: HashMap<(usize, i32), i64>,
    here: Option<((usize, i32), i64)>,
}

impl<'a> Cursor<'a> {
    fn route(&mut self, policy: &Policy, record: &RecordRef<'a>) -> Result<Route, Error> {
        match self.topic {
            Some((topic, route)) if topic == record.topic => Ok(route),
            _ => {
                let route = policy
                    .routes
                    .find(record.topic)
                    .ok_or_else(|| Error::NoRoute { at: record.place() })?;
                self.topic = Some((record.topic, route));
                Ok(route)
            }
        }
    }

    /// Checks that offsets increase within a transaction; a client that went back would cause records to be written
    /// twice.
    fn advance(
        &mut self,
        route: Route,
        record: &RecordRef<'_>,
        ledger: &Ledger,
    ) -> Result<(), Error> {
        let key = (route.source, record.partition);
        let last = match self.here {
            Some((here, last)) if here == key => Some(last),
            other => {
                if let Some((left, last)) = other {
                    self.last.insert(left, last);
                }
                self.last
                    .get(&key)
                    .copied()
                    .or_else(|| ledger.last_offset(route, record.partition))
            }
        };
        if record.partition < 0 || record.offset < 0 || record.offset == i64::MAX {
            return Err(Error::BadRecord {
                at: record.place(),
                reason: "partition or offset is out of range",
            });
        }
        match last {
            Some(last) if record.offset <= last => Err(Error::OffsetWentBack {
                at: record.place(),
                last,
            }),
            _ => {
                self.here = Some((key, record.offset));
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests;

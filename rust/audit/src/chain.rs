//! O4: the positions of a source partition form one chain.
//!
//! Each position names the offset of the previous one. A lane writes to one partition of the positions topic, and a
//! source partition keeps its lane for a generation. So the positions of one generation are in one partition, in order,
//! and are checked as they are read. The links between generations, possibly in different partitions, are checked at
//! the end, because the order in which partitions are read has no meaning.

use std::collections::HashMap;

use super::facts::{Position, Source};
use super::log::{LogId, Logs};
use super::report::{Fault, Finding, Report, Since, TransactionName};

/// A position to which the next one is compared.
#[derive(Debug, Clone)]
struct Link {
    log: LogId,
    at: i64,
    generation: i64,
    prev: Option<i64>,
    offset: i64,
    topic_id: String,
    target_topic_id: String,
    /// The last known leader epoch since the chain began; a position may not know it.
    leader_epoch: Option<i64>,
    target: LogId,
    target_offset: Option<i64>,
    records: i64,
    total_records: i64,
    name: TransactionName,
}

/// Positions of one generation.
#[derive(Debug)]
struct Fragment {
    head: Link,
    tail: Link,
    /// First target offset that it names.
    first_target: Option<i64>,
    /// The position after the last break that compaction explains.
    since: Option<Link>,
}

/// Relation of two successive positions.
enum Joint {
    Joined,
    /// A restart that the user requested.
    Restart,
    /// The missing positions may have been removed.
    Explained,
    Broken(String),
}

/// Chains of all source partitions.
#[derive(Debug, Default)]
pub(super) struct Chains {
    sources: HashMap<Source, Vec<Fragment>>,
    /// Per target partition of source partitions: positions up to this offset may have been removed.
    evidence: HashMap<LogId, Option<i64>>,
}

impl Chains {
    /// Takes the next committed position of its partition of the positions topic.
    pub(super) fn push(
        &mut self,
        logs: &Logs,
        report: &mut Report,
        log: LogId,
        at: i64,
        position: &Position,
        target: LogId,
    ) {
        let mut link = Link {
            log,
            at,
            generation: position.generation,
            prev: position.prev,
            offset: position.offset,
            topic_id: position.topic_id.clone(),
            target_topic_id: position.target_topic_id.clone(),
            leader_epoch: position.leader_epoch,
            target,
            target_offset: position.target_offset,
            records: position.records,
            total_records: position.total_records,
            name: position.name.clone(),
        };
        if link.prev.is_none() && !position.is_set() {
            broken(logs, report, &link, "it names no previous position".into());
        }
        if link.prev.is_some_and(|prev| prev >= link.offset) {
            broken(
                logs,
                report,
                &link,
                "it is not after the previous one".into(),
            );
        }
        self.evidence.entry(target).or_default();
        let fragments = self.sources.entry(position.source.clone()).or_default();
        let alone = fragments.is_empty();
        let latest = fragments
            .iter_mut()
            .rfind(|fragment| fragment.tail.log == log);
        match latest {
            Some(fragment) if fragment.tail.generation == link.generation => {
                let gone = fragment.tail.at < logs.get(log).whole_from;
                match join(&fragment.tail, &mut link, gone) {
                    Joint::Broken(detail) => broken(logs, report, &link, detail),
                    Joint::Explained => {
                        raise(&mut self.evidence, link.target, link.target_offset);
                        fragment.since = Some(link.clone());
                    }
                    Joint::Joined | Joint::Restart => {}
                }
                fragment.first_target = fragment.first_target.or(link.target_offset);
                fragment.tail = link;
            }
            Some(fragment) if fragment.tail.generation > link.generation => {
                let newer = fragment.tail.generation;
                let detail = format!(
                    "generation {} comes after generation {newer}",
                    link.generation
                );
                broken(logs, report, &link, detail);
            }
            _ => {
                // a first estimate, which can only weaken the audit; `finish` decides
                if alone && link.prev.is_some() && !logs.positions_whole() {
                    raise(&mut self.evidence, link.target, link.target_offset);
                }
                fragments.push(Fragment {
                    head: link.clone(),
                    first_target: link.target_offset,
                    tail: link,
                    since: None,
                });
            }
        }
    }

    /// Joins the generations, and determines where each chain is complete from.
    pub(super) fn finish(&mut self, logs: &Logs, report: &mut Report) {
        let gone = !logs.positions_whole();
        let mut sources: Vec<_> = self.sources.iter_mut().collect();
        sources.sort_by_key(|(source, _)| *source);
        for (source, fragments) in sources {
            fragments.sort_by_key(|fragment| fragment.head.generation);
            let mut since = None;
            let mut before: Option<Link> = None;
            // a beginning that may hide removed positions, until the end of their records is known
            let mut hidden: Option<LogId> = None;
            for fragment in fragments {
                let head = &mut fragment.head;
                let joint = match &before {
                    _ if head.prev.is_none() && gone => {
                        hidden = Some(head.target);
                        since = Some(head.clone());
                        Joint::Restart
                    }
                    None if head.prev.is_none() => Joint::Restart,
                    None if gone => Joint::Explained,
                    None => Joint::Broken("its previous position does not exist".into()),
                    Some(tail) if tail.generation == head.generation => Joint::Broken(format!(
                        "generation {} is in two partitions of the topic",
                        head.generation
                    )),
                    Some(tail) => join(tail, head, gone),
                };
                match joint {
                    Joint::Broken(detail) => broken(logs, report, head, detail),
                    Joint::Explained => {
                        raise(&mut self.evidence, head.target, head.target_offset);
                        since = Some(head.clone());
                    }
                    Joint::Joined | Joint::Restart => {}
                }
                if let (Some(target), Some(first)) = (hidden, fragment.first_target) {
                    raise(&mut self.evidence, target, Some(first));
                    hidden = None;
                }
                since = fragment.since.take().or(since);
                before = Some(fragment.tail.clone());
            }
            if let Some(target) = hidden {
                raise(&mut self.evidence, target, Some(i64::MAX));
            }
            if let Some(link) = since {
                report.since.push(Since {
                    topic: source.topic.clone(),
                    partition: source.partition,
                    transaction: link.name,
                    offset: link.prev.unwrap_or(link.offset),
                });
            }
        }
    }

    /// Returns true if the position of a record at `offset` of `target` would be known if it was ever written.
    pub(super) fn can_judge(&self, logs: &Logs, target: LogId, offset: i64) -> bool {
        match self.evidence.get(&target) {
            Some(evidence) => evidence.is_none_or(|gone_up_to| offset > gone_up_to),
            None => logs.positions_whole(),
        }
    }
}

fn raise(evidence: &mut HashMap<LogId, Option<i64>>, target: LogId, offset: Option<i64>) {
    let known = evidence.entry(target).or_default();
    *known = (*known).max(offset);
}

/// Compares two successive positions; the later one inherits missing values.
fn join(before: &Link, link: &mut Link, gone: bool) -> Joint {
    let Some(prev) = link.prev else {
        return Joint::Restart;
    };
    if prev != before.offset {
        if gone {
            return Joint::Explained;
        }
        return Joint::Broken(format!(
            "it names {prev} as the previous position, which is {}",
            before.offset
        ));
    }
    if link.topic_id != before.topic_id {
        return Joint::Broken(format!(
            "the source topic's id changes from {} to {}",
            before.topic_id, link.topic_id
        ));
    }
    if link.target_topic_id != before.target_topic_id {
        return Joint::Broken(format!(
            "the target topic's id changes from {} to {}",
            before.target_topic_id, link.target_topic_id
        ));
    }
    if link.total_records != before.total_records.saturating_add(link.records) {
        return Joint::Broken(format!(
            "its total is {} records, the previous total is {}, and its own records are {}",
            link.total_records, before.total_records, link.records
        ));
    }
    if link.records == 0 && link.target_offset != before.target_offset {
        return Joint::Broken("its target offset moves without a record".into());
    }
    // after a gap the source's log is another one, so nothing is known of it
    if link.name.txn > 0 {
        match (before.leader_epoch, link.leader_epoch) {
            (Some(older), Some(newer)) if newer < older => {
                return Joint::Broken(format!(
                    "the source's leader epoch goes back from {older} to {newer}"
                ));
            }
            (older, None) => link.leader_epoch = older,
            _ => {}
        }
    }
    Joint::Joined
}

fn broken(logs: &Logs, report: &mut Report, link: &Link, detail: String) {
    report.add(Finding {
        fault: Fault::BrokenChain,
        place: logs.get(link.log).place(link.at),
        producer: link.name.producer,
        transaction: Some(link.name.clone()),
        detail,
    });
}

//! Per-broker fetch state: the fetch session and the in-flight request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::fetch_session::{FetchSession, SessionAsk};

use crate::protocol::fetch::{AskedPartition, AskedTopic, FetchRequest, ForgottenTopic};
use crate::topic::TopicId;

/// The state of a partition in a broker's fetch session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SentPartition {
    pub(super) name: Arc<str>,
    pub(super) topic_id: TopicId,
    pub(super) asked: AskedPartition,
}

/// Fetch state of one broker.
#[derive(Debug, Default)]
pub(super) struct BrokerSession {
    pub(super) session: FetchSession<u64, SentPartition>,
    /// Ticket of the in-flight request.
    pub(super) ticket: Option<u64>,
    /// The in-flight request asked for an immediate answer, even an empty one.
    pub(super) hurried: bool,
}

/// Returns `frame` with the session's changes.
pub(super) fn request(frame: FetchRequest, ask: &SessionAsk<u64, SentPartition>) -> FetchRequest {
    let asked = by_topic(&ask.named).into_iter();
    let forgotten = by_topic(&ask.forgotten).into_iter();
    FetchRequest {
        session_id: ask.id,
        session_epoch: ask.epoch,
        topics: asked
            .map(|(told, partitions)| AskedTopic {
                name: Arc::clone(&told.name),
                id: told.topic_id,
                partitions,
            })
            .collect(),
        forgotten: forgotten
            .map(|(told, partitions)| ForgottenTopic {
                name: Arc::clone(&told.name),
                id: told.topic_id,
                partitions: partitions.iter().map(|asked| asked.index).collect(),
            })
            .collect(),
        ..frame
    }
}

/// Returns whether a request would name and forget the same reassigned partition: a broker forgets last, and would
/// never return it.
pub(super) fn forgets_what_it_names(ask: &SessionAsk<u64, SentPartition>) -> bool {
    let place = |(_, told): &(u64, SentPartition)| (told.topic_id, told.asked.index);
    let forgotten: BTreeSet<(TopicId, i32)> = ask.forgotten.iter().map(place).collect();
    !forgotten.is_empty() && ask.named.iter().any(|one| forgotten.contains(&place(one)))
}

/// Groups partitions by topic, in the order of each topic's first partition.
fn by_topic(all: &[(u64, SentPartition)]) -> Vec<(&SentPartition, Vec<AskedPartition>)> {
    let mut topics: Vec<(&SentPartition, Vec<AskedPartition>)> = Vec::new();
    let mut places: BTreeMap<(&str, TopicId), usize> = BTreeMap::new();
    for (_, told) in all {
        let place = *places
            .entry((&told.name, told.topic_id))
            .or_insert_with(|| {
                topics.push((told, Vec::new()));
                topics.len() - 1
            });
        topics[place].1.push(told.asked);
    }
    topics
}

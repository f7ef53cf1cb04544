//! Rule 5: the topics of a transaction are the ones that the positions name.

use std::collections::{BTreeMap, BTreeSet};

use eomirror_kafka::TopicId;

use super::consumer::LaneSource;
use super::failure::{Failure, FailureKind};
use super::target::LaneTarget;
use super::transaction::OpenTransaction;

/// Returns the source topics whose identity needs no further check; see [`super::Lane::pinned`].
pub(super) fn pinned<'a>(
    transaction: &OpenTransaction,
    source: &'a LaneSource,
    target: &LaneTarget,
) -> BTreeSet<&'a str> {
    if !source.goes_by_id() || !target.goes_by_id() {
        return BTreeSet::new();
    }
    let partitions = transaction.numbers().map(|number| source.partition(number));
    partitions
        .filter(|partition| partition.topic_id.is_some() && partition.route.target_id.is_some())
        .map(|partition| partition.partition.topic.as_str())
        .collect()
}

/// Fails when records were written to, or will next be written to, another target topic than the intended one.
///
/// Metadata alone is no proof: it may have sent a batch to another topic, and a broker with older metadata may have
/// restored it since. So the Produce answers count, which name the topic that took a batch.
pub(super) fn check_targets(
    transaction: &OpenTransaction,
    source: &LaneSource,
    target: &mut LaneTarget,
) -> Result<(), Failure> {
    let producer = target
        .producer("settle")
        .map_err(|error| source.failure(&error))?;
    let mut written: BTreeMap<String, Vec<TopicId>> = BTreeMap::new();
    for (id, topic) in producer.written() {
        written.entry(topic.clone()).or_default().push(*id);
    }
    let directory = producer.client().cached_metadata();
    for number in transaction.numbers() {
        let partition = source.partition(number);
        let Some(meant) = partition.route.target_id else {
            continue;
        };
        let topic = &partition.target.topic;
        let known = directory.topic(topic).map(|facts| facts.id);
        let ids = written.get(topic).into_iter().flatten().copied();
        let mut ids = ids.chain(known.filter(|id| !id.is_none()));
        if let Some(found) = ids.find(|id| *id != meant) {
            return Err(Failure::new(
                FailureKind::TopicGone,
                format!("EO-5: target topic {topic} had id {meant} and now has {found}"),
                "compare the topics' ids",
            )
            .about(&partition.partition));
        }
    }
    Ok(())
}

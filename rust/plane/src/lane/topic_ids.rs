//! Rule 5: the topics of a transaction are those that the positions speak of.

use std::collections::{BTreeMap, BTreeSet};

use super::failure::{Failure, FailureKind};
use super::mover::{Lane, misuse};
use super::target::Target;
use eomirror_kafka::TopicId;

impl Lane {
    /// Source topics of the open transaction of which nobody need ask whether they are still the ones that were meant
    /// (rule 5): their records are fetched and written by topic id, and both ids were given. What [`Lane::settle`]
    /// accepts afterwards is of these topics.
    #[must_use]
    pub fn pinned(&self) -> BTreeSet<&str> {
        let Target::Open(producer) = &self.target else {
            return BTreeSet::new();
        };
        if !self.fetcher.goes_by_id() || !producer.goes_by_id() {
            return BTreeSet::new();
        }
        let sources = self
            .books
            .keys()
            .map(|number| &self.sources[*number as usize]);
        sources
            .filter(|source| source.topic_id.is_some() && source.route.target_id.is_some())
            .map(|source| source.partition.topic.as_str())
            .collect()
    }

    /// Rule 5: what was written by topic id must be the topic that was meant, and as far as we know it still is.
    ///
    /// Metadata alone would not do: it may have led a batch to another topic, and then been put back by a broker that
    /// is behind. So the answers count, which name the topic that took something.
    pub(super) fn check_targets(&mut self) -> Result<(), Failure> {
        let Target::Open(producer) = &mut self.target else {
            return Err(misuse("settle"));
        };
        let mut written: BTreeMap<String, Vec<TopicId>> = BTreeMap::new();
        for (id, topic) in producer.written() {
            written.entry(topic.clone()).or_default().push(*id);
        }
        let directory = producer.client().directory();
        for number in self.books.keys() {
            let source = &self.sources[*number as usize];
            let Some(meant) = source.route.target_id else {
                continue;
            };
            let topic = &source.target.topic;
            let known = directory.topic(topic).map(|facts| facts.id);
            let ids = written.get(topic).into_iter().flatten().copied();
            let mut ids = ids.chain(known.filter(|id| !id.is_none()));
            if let Some(found) = ids.find(|id| *id != meant) {
                return Err(Failure::new(
                    FailureKind::TopicGone,
                    format!("EO-5: target topic {topic} had id {meant} and now has {found}"),
                    "compare the topics' ids",
                )
                .about(&source.partition));
            }
        }
        Ok(())
    }
}

//! A Fetch answer by partition. Topics go by id, or by name up to version 12.

use std::collections::BTreeMap;

use crate::error_code::ErrorCode;

use crate::protocol::fetch::{AnsweredPartition, FetchAnswer};
use crate::topic::TopicId;
use crate::topic::TopicPartition;

/// An answer by partition.
pub(super) struct Response {
    /// Error code of the whole answer.
    pub(super) error: ErrorCode,
    by_id: BTreeMap<(TopicId, i32), AnsweredPartition>,
    by_name: BTreeMap<(String, i32), AnsweredPartition>,
}

impl Response {
    pub(super) fn new(answer: FetchAnswer) -> Self {
        let mut said = Self {
            error: answer.error,
            by_id: BTreeMap::new(),
            by_name: BTreeMap::new(),
        };
        for topic in answer.topics {
            for partition in topic.partitions {
                if topic.id.is_none() {
                    let place = (topic.name.clone(), partition.index);
                    said.by_name.insert(place, partition);
                } else {
                    said.by_id.insert((topic.id, partition.index), partition);
                }
            }
        }
        said
    }

    /// Returns whether topics go by name, so that the broker has not compared ids.
    pub(super) fn is_by_name(&self) -> bool {
        !self.by_name.is_empty()
    }

    pub(super) fn take(
        &mut self,
        id: TopicId,
        partition: &TopicPartition,
    ) -> Option<AnsweredPartition> {
        let index = partition.partition;
        self.by_id.remove(&(id, index)).or_else(|| {
            // most answers go by id, and need no copy of the name
            (!self.by_name.is_empty())
                .then(|| self.by_name.remove(&(partition.topic.clone(), index)))
                .flatten()
        })
    }
}

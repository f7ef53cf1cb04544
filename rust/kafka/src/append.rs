//! Appends a batch outside of a transaction.

use std::time::{Duration, Instant};

use bytes::Bytes;
use eomirror_batch::Batch;

use crate::client::Client;
use crate::error::Error;
use crate::error_code::ErrorCode;
use crate::protocol::produce::{FramedBatch, HEADER, ProduceRequest, ProduceV1, WrittenTopic};
use crate::topic::{TopicId, TopicPartition};

/// Time that a leader may wait for its followers.
const REPLICATION: Duration = Duration::from_secs(10);

impl Client {
    /// Appends one batch without a producer id, and returns its base offset once all in-sync replicas have it.
    ///
    /// A lost answer is retried, so the batch may be in the log more than once.
    pub fn append(
        &mut self,
        target: &TopicPartition,
        batch: &Bytes,
        deadline: Instant,
    ) -> Result<i64, Error> {
        let unsendable = |reason: String| Error::Unsendable {
            target: target.clone(),
            reason,
        };
        let parsed = Batch::parse(batch).map_err(|error| unsendable(error.to_string()))?;
        let framed = FramedBatch {
            head: *parsed.header(),
            body: batch.slice(HEADER..),
        };
        let partitions = [(target.topic.as_str(), target.partition)];
        let timeout_ms = i32::try_from(REPLICATION.as_millis()).unwrap_or(i32::MAX);
        let written = self.of_leaders(
            &partitions,
            deadline,
            |_, asked| {
                let topics = asked.iter().map(|(topic, partition)| WrittenTopic {
                    name: (*topic).to_owned(),
                    id: TopicId::NONE,
                    partitions: vec![(*partition, framed.clone())],
                });
                ProduceV1(ProduceRequest {
                    transactional_id: None,
                    timeout_ms,
                    topics: topics.collect(),
                })
            },
            |answer| {
                let said = answer.into_iter().map(|one| {
                    let code = match one.error {
                        // the followers come back, and a second copy of the batch does no harm
                        code if code.is_passing_for_leader() => ErrorCode::REQUEST_TIMED_OUT,
                        code => code,
                    };
                    (one.topic, one.index, code, one.base_offset)
                });
                said.collect()
            },
        )?;
        Ok(written.first().map_or(-1, |(_, offset)| *offset))
    }
}

//! Looks up the transactional ids that have written to partitions, as far as brokers remember.
//!
//! A leader remembers a producer for a day (`producer.id.expiration.ms`), and a coordinator a transactional id for a
//! week (`transactional.id.expiration.ms`). So a result is proof, and an empty one is none.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::client::Client;
use crate::error::Error;
use crate::metadata::Metadata;
use crate::network::Peer;
use crate::protocol::describe_producers::DescribeProducers;
use crate::protocol::list_transactions::ListTransactions;
use crate::protocol::{Request, by_topic};
use crate::topic::TopicPartition;

impl Client {
    /// Returns partitions with the transactional ids that have written there; producers without one are left out.
    pub fn writers(
        &mut self,
        partitions: &[(&str, i32)],
        deadline: Instant,
    ) -> Result<Vec<(TopicPartition, String)>, Error> {
        let asked = |_: &Metadata, partitions: &[(&str, i32)]| DescribeProducers {
            topics: by_topic(partitions),
        };
        let found = self.of_leaders(partitions, deadline, asked, |described| {
            let partitions = described.partitions.into_iter();
            let said = partitions.map(|one| (one.topic, one.partition, one.error, one.producers));
            said.collect()
        })?;
        let mut wrote: BTreeMap<i64, Vec<TopicPartition>> = BTreeMap::new();
        for (partition, producers) in found {
            for producer in producers {
                let where_ = wrote.entry(producer.producer_id).or_default();
                where_.push(partition.clone());
            }
        }
        if wrote.is_empty() {
            return Ok(Vec::new());
        }
        let request = ListTransactions {
            producer_ids: wrote.keys().copied().collect(),
        };
        let what = ListTransactions::API.name;
        // each coordinator has its own ids
        let brokers: Vec<i32> = self.cached_metadata().brokers().keys().copied().collect();
        let mut writers = Vec::new();
        for broker in brokers {
            let answer = self.call(Peer::Broker(broker), &request, what, deadline)?;
            if !answer.error.is_none() {
                return Err(Error::Refused {
                    what: format!("{what} of broker {broker}"),
                    code: answer.error,
                });
            }
            for (transactional_id, producer_id) in answer.listed {
                let partitions = wrote.get(&producer_id).into_iter().flatten();
                writers.extend(partitions.map(|it| (it.clone(), transactional_id.clone())));
            }
        }
        Ok(writers)
    }
}

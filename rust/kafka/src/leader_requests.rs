//! Requests to the leaders of partitions, with retries while leaders change.

use std::collections::BTreeMap;
use std::time::Instant;

use eomirror_core::{ErrorCode, Meaning};

use crate::client::{Client, RETRY};
use crate::error::Error;
use crate::metadata::Metadata;
use crate::network::Peer;
use crate::protocol::Request;
use crate::topic::TopicPartition;

impl Client {
    /// Sends a request to the leader of each partition, with retries until the deadline. `read` returns topic,
    /// partition, error code and result for each partition of an answer.
    pub(crate) fn of_leaders<R: Request, T>(
        &mut self,
        partitions: &[(&str, i32)],
        deadline: Instant,
        ask: impl Fn(&Metadata, &[(&str, i32)]) -> R,
        read: impl Fn(R::Answer) -> Vec<(String, i32, ErrorCode, T)>,
    ) -> Result<Vec<(TopicPartition, T)>, Error> {
        let what = R::API.name;
        let started = self.clock().now();
        let mut missing: Vec<(&str, i32)> = partitions.to_vec();
        let mut found = Vec::with_capacity(partitions.len());
        let mut trouble: Option<String> = None;
        while !missing.is_empty() {
            let mut topics: Vec<&str> = missing.iter().map(|(topic, _)| *topic).collect();
            topics.sort_unstable();
            topics.dedup();
            // known leaders are tried without a lookup, which saves a round trip
            let known = |(topic, partition): &(&str, i32)| {
                let leader = self.cached_metadata().leader(topic, *partition);
                leader.is_some()
            };
            if trouble.take().is_some() || !missing.iter().all(known) {
                self.metadata(&topics, deadline)?;
            }
            let mut led: BTreeMap<i32, Vec<(&str, i32)>> = BTreeMap::new();
            for (topic, partition) in &missing {
                match self.cached_metadata().leader(topic, *partition) {
                    Some((leader, _)) => led.entry(leader).or_default().push((topic, *partition)),
                    None => {
                        trouble = Some(self.cached_metadata().why_leaderless(topic, *partition));
                    }
                }
            }
            for (leader, mut asked) in led {
                let request = ask(self.cached_metadata(), &asked);
                let peer = Peer::Broker(leader);
                let answer = match self.call_for_now(peer, &request, what, deadline) {
                    Ok(answer) => answer,
                    Err(error) if error.is_final() => return Err(error),
                    Err(error) => {
                        trouble = Some(error.to_string());
                        continue;
                    }
                };
                for (topic, partition, code, said) in read(answer) {
                    let Some(at) = asked.iter().position(|it| *it == (&*topic, partition)) else {
                        // not requested, or reported twice
                        continue;
                    };
                    asked.swap_remove(at);
                    let about = format!("{what} of {topic}-{partition}");
                    match code.meaning() {
                        Meaning::Fine => {
                            missing.retain(|asked| *asked != (topic.as_str(), partition));
                            found.push((TopicPartition::new(topic, partition), said));
                        }
                        Meaning::Moved | Meaning::Unknown | Meaning::Later | Meaning::Failing => {
                            trouble = Some(format!("{about}: {code}"));
                        }
                        _ => return Err(Error::Refused { what: about, code }),
                    }
                }
                if let Some((topic, partition)) = asked.first() {
                    let silent = format!("broker {leader} did not answer for {topic}-{partition}");
                    trouble = Some(silent);
                }
            }
            if !missing.is_empty() {
                let last = trouble.as_deref().unwrap_or_default();
                self.rest_before(what, started, deadline, last)?;
            }
        }
        Ok(found)
    }

    /// Waits before a retry; returns the last error when the deadline has passed.
    pub(crate) fn rest_before(
        &mut self,
        what: &'static str,
        started: Instant,
        deadline: Instant,
        trouble: &str,
    ) -> Result<(), Error> {
        let now = self.clock().now();
        if now + RETRY >= deadline {
            return Err(Error::TimedOut {
                what,
                waited: now - started,
                last: trouble.to_owned(),
            });
        }
        self.pause(now + RETRY);
        Ok(())
    }
}

//! Metadata of a cluster: brokers, topics and partition leaders. Pure.
//!
//! Any broker may answer, and some brokers know less than others. So a leader epoch does not go back within a topic id
//! (KIP-320): an answer with an older one is out of date. If only older epochs are seen for a while, they are accepted:
//! a cluster that was restored from an older state restarts with older epochs, and a reader that kept the newer ones
//! would wait forever and never notice the loss.
//!
//! For the same reason a topic or a partition that is missing from an answer is not forgotten: it may be new, or a
//! right may be missing for a while. It has no leader then. When it is named again, its epoch is compared with the one
//! before.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::error_code::ErrorCode;

use crate::protocol::fetch::NewLeader;
use crate::protocol::metadata::{ClusterMetadata, PartitionMetadata, TopicMetadata};
use crate::topic::TopicId;

/// Time for which an older leader epoch must be the only one seen before it is accepted. Brokers with old metadata
/// catch up within moments.
const DISBELIEF: Duration = Duration::from_secs(10);

/// Address of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Host name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// Metadata of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicFacts {
    /// Its id; [`TopicId::NONE`] when the topic is unknown.
    pub id: TopicId,
    /// The error of the topic; `NONE` when it is known.
    pub error: ErrorCode,
    /// Time of the first answer with this error.
    pub since: Instant,
    /// Partitions by number.
    pub partitions: BTreeMap<i32, PartitionFacts>,
    /// Its last known id.
    last_id: TopicId,
    /// Partitions of that topic that are missing from the last answer.
    left_out: BTreeMap<i32, PartitionFacts>,
}

/// Metadata of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionFacts {
    /// Id of the leader, if there is one.
    pub leader: Option<i32>,
    /// Leader epoch; -1 when unknown.
    pub leader_epoch: i32,
    /// Time since which only older epochs are seen.
    pub(crate) doubted: Option<Instant>,
}

/// Metadata of a cluster.
#[derive(Debug, Clone, Default)]
pub struct Metadata {
    cluster_id: Option<String>,
    brokers: BTreeMap<i32, Endpoint>,
    topics: BTreeMap<String, TopicFacts>,
    revision: u64,
    moves: u64,
}

impl Metadata {
    /// Returns the cluster id.
    #[must_use]
    pub fn cluster_id(&self) -> Option<&str> {
        self.cluster_id.as_deref()
    }

    /// Returns the brokers by id.
    #[must_use]
    pub fn brokers(&self) -> &BTreeMap<i32, Endpoint> {
        &self.brokers
    }

    /// Returns a topic; None when it was never requested.
    #[must_use]
    pub fn topic(&self, name: &str) -> Option<&TopicFacts> {
        self.topics.get(name)
    }

    /// Returns leader and leader epoch of a partition.
    #[must_use]
    pub fn leader(&self, topic: &str, partition: i32) -> Option<(i32, i32)> {
        let facts = self.topics.get(topic)?.partitions.get(&partition)?;
        facts.leader.map(|leader| (leader, facts.leader_epoch))
    }

    /// Returns whether a current broker has described a topic.
    pub(crate) fn tells_of(&self, topic: &str) -> bool {
        !self.brokers.is_empty() && self.topics.contains_key(topic)
    }

    /// Returns the reason that a partition has no leader, for messages.
    pub(crate) fn why_leaderless(&self, topic: &str, partition: i32) -> String {
        let why = match self.topics.get(topic) {
            Some(facts) if !facts.error.is_none() => format!(": {}", facts.error),
            Some(facts) if !facts.partitions.contains_key(&partition) => {
                ": the topic has no such partition".to_owned()
            }
            _ => String::new(),
        };
        format!("no leader is known for {topic}-{partition}{why}")
    }

    /// Returns a number that grows with every change.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns how many times a partition was seen with a newer leader epoch: in between it may have had no leader.
    #[must_use]
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// Returns all topics that were ever requested.
    pub(crate) fn topics(&self) -> impl Iterator<Item = &String> {
        self.topics.keys()
    }

    /// Returns whether a partition of an existing topic has no leader.
    pub(crate) fn lacks_leaders(&self) -> bool {
        let mut topics = self.topics.values();
        topics.any(|topic| topic.partitions.values().any(|it| it.leader.is_none()))
    }

    /// Merges an answer.
    pub(crate) fn apply(&mut self, metadata: ClusterMetadata, now: Instant) {
        self.revision += 1;
        self.cluster_id = metadata.cluster_id.or(self.cluster_id.take());
        self.brokers = metadata
            .brokers
            .into_iter()
            .filter_map(|broker| {
                let port = u16::try_from(broker.port).ok()?;
                Some((
                    broker.id,
                    Endpoint {
                        host: broker.host,
                        port,
                    },
                ))
            })
            .collect();
        for topic in metadata.topics {
            let before = self.topics.remove(&topic.name);
            let (after, moves) = merged(before, &topic, now);
            self.moves += moves;
            self.topics.insert(topic.name, after);
        }
    }

    /// Forgets all brokers. Topics and their leader epochs stay for comparison with the next answer.
    pub(crate) fn forget_brokers(&mut self) {
        self.revision += 1;
        self.brokers.clear();
        let topics = self.topics.values_mut();
        for facts in topics.flat_map(|topic| topic.partitions.values_mut()) {
            facts.leader = None;
        }
    }

    /// Takes the current leader from a broker that does not lead the partition. False when it is known already, or
    /// belongs to an earlier topic of the same name, whose epochs are larger. `id` is the id of the requested topic, if
    /// it went by id.
    pub(crate) fn learn(
        &mut self,
        topic: &str,
        id: TopicId,
        partition: i32,
        leader: NewLeader,
    ) -> bool {
        let known = self.brokers.contains_key(&leader.broker);
        let Some(facts) = self
            .topics
            .get_mut(topic)
            .filter(|topic| id.is_none() || topic.id == id)
            .and_then(|topic| topic.partitions.get_mut(&partition))
        else {
            return false;
        };
        if !known || leader.epoch <= facts.leader_epoch {
            return false;
        }
        self.moves += u64::from(facts.leader_epoch >= 0);
        facts.leader = Some(leader.broker);
        facts.leader_epoch = leader.epoch;
        facts.doubted = None;
        self.revision += 1;
        true
    }
}

/// Merges an answer about a topic. Also returns the number of partitions with a newer leader epoch.
fn merged(before: Option<TopicFacts>, topic: &TopicMetadata, now: Instant) -> (TopicFacts, u64) {
    let error = topic.error;
    let mut facts = TopicFacts {
        id: topic.id,
        error,
        since: now,
        partitions: BTreeMap::new(),
        last_id: topic.id,
        left_out: BTreeMap::new(),
    };
    if let Some(before) = before {
        if before.error == error {
            facts.since = before.since;
        }
        // an unknown topic is not a recreated one
        if topic.id.is_none() {
            facts.last_id = before.last_id;
        }
        if facts.last_id == before.last_id {
            facts.left_out = before.left_out;
            facts.left_out.extend(before.partitions);
        }
    }
    let mut moves = 0;
    for partition in &topic.partitions {
        let before = facts.left_out.remove(&partition.index);
        let after = agreed(before, partition, now);
        moves += u64::from(before.is_some_and(|before| has_moved(before, after)));
        facts.partitions.insert(partition.index, after);
    }
    for partition in facts.left_out.values_mut() {
        partition.leader = None;
    }
    (facts, moves)
}

/// Merges an answer about a partition.
fn agreed(
    before: Option<PartitionFacts>,
    partition: &PartitionMetadata,
    now: Instant,
) -> PartitionFacts {
    let heard = PartitionFacts {
        leader: (partition.leader >= 0).then_some(partition.leader),
        leader_epoch: partition.leader_epoch,
        doubted: None,
    };
    let Some(before) = before.filter(|before| before.leader_epoch > heard.leader_epoch) else {
        return heard;
    };
    let since = before.doubted.unwrap_or(now);
    if now.saturating_duration_since(since) < DISBELIEF {
        PartitionFacts {
            doubted: Some(since),
            ..before
        }
    } else {
        heard
    }
}

/// Returns whether the leader epoch is newer than before. Without a leader, the next epoch is unknown.
fn has_moved(before: PartitionFacts, after: PartitionFacts) -> bool {
    after.leader.is_some() && (0..after.leader_epoch).contains(&before.leader_epoch)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Metadata;
    use crate::error_code::ErrorCode;
    use crate::protocol::fetch::NewLeader;
    use crate::protocol::metadata::{Broker, ClusterMetadata, PartitionMetadata, TopicMetadata};
    use crate::topic::TopicId;

    fn answer(id: u8, error: i16, leader: i32, leader_epoch: i32) -> ClusterMetadata {
        let partition = PartitionMetadata {
            error: ErrorCode::NONE,
            index: 0,
            leader,
            leader_epoch,
        };
        ClusterMetadata {
            brokers: [1, 2]
                .map(|id| Broker {
                    id,
                    host: format!("h{id}"),
                    port: 9092,
                })
                .into(),
            topics: vec![TopicMetadata {
                error: ErrorCode(error),
                name: "a".to_owned(),
                id: TopicId([id; 16]),
                partitions: if error == 0 { vec![partition] } else { vec![] },
            }],
            ..ClusterMetadata::default()
        }
    }

    #[test]
    fn a_leader_epoch_never_goes_back_within_one_topic() {
        let now = Instant::now();
        let mut metadata = Metadata::default();
        metadata.apply(answer(1, 0, 1, 5), now);
        metadata.apply(answer(1, 0, 2, 4), now);
        assert_eq!(metadata.leader("a", 0), Some((1, 5)));
        assert_eq!(metadata.revision(), 2);
        metadata.apply(answer(1, 0, 2, 6), now);
        assert_eq!(metadata.leader("a", 0), Some((2, 6)));
        // another topic of the same name starts with new epochs
        metadata.apply(answer(2, 0, 1, 0), now);
        assert_eq!(metadata.leader("a", 0), Some((1, 0)));
    }

    #[test]
    fn an_older_epoch_is_accepted_when_nothing_newer_is_seen() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut metadata = Metadata::default();
        metadata.apply(answer(1, 0, 1, 5), start);
        metadata.apply(answer(1, 0, 2, 3), after(100));
        metadata.apply(answer(1, 0, 1, 5), after(105));
        metadata.apply(answer(1, 0, 2, 3), after(111));
        metadata.apply(answer(1, 0, 2, 3), after(120));
        assert_eq!(metadata.leader("a", 0), Some((1, 5)));
        metadata.apply(answer(1, 0, 2, 3), after(121));
        assert_eq!(metadata.leader("a", 0), Some((2, 3)));
    }

    #[test]
    fn a_leader_of_a_newer_epoch_is_counted_when_there_is_one() {
        let now = Instant::now();
        let mut metadata = Metadata::default();
        metadata.apply(answer(1, 0, -1, -1), now);
        metadata.apply(answer(1, 0, 1, 0), now);
        assert_eq!(metadata.moves(), 0, "the first one that is heard of");
        assert!(!metadata.lacks_leaders());
        metadata.apply(answer(1, 0, -1, 1), now);
        assert_eq!(metadata.moves(), 0, "no leader is known yet");
        assert!(metadata.lacks_leaders());
        metadata.apply(answer(1, 0, 1, 2), now);
        assert_eq!(metadata.moves(), 1);
        metadata.forget_brokers();
        metadata.apply(answer(1, 0, 1, 2), now);
        assert_eq!(metadata.moves(), 1, "the same one");
        let news = NewLeader {
            broker: 2,
            epoch: 3,
        };
        assert!(metadata.learn("a", TopicId([1; 16]), 0, news));
        assert_eq!(metadata.moves(), 2);
        // another topic of the same name
        metadata.apply(answer(2, 0, 1, 9), now);
        assert_eq!(metadata.moves(), 2);
        assert_eq!(metadata.topics().collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn partitions_missing_from_an_answer_keep_their_epochs() {
        let now = Instant::now();
        let mut of_no_partition = answer(1, 0, 1, 5);
        of_no_partition.topics[0].partitions.clear();
        for unknowing in [answer(0, 3, -1, -1), of_no_partition] {
            let mut metadata = Metadata::default();
            metadata.apply(answer(1, 0, 1, 5), now);
            for _ in ["once", "twice"] {
                metadata.apply(unknowing.clone(), now);
                assert_eq!(metadata.leader("a", 0), None);
                assert!(metadata.topic("a").unwrap().partitions.is_empty());
                assert!(!metadata.lacks_leaders(), "no batch waits for it");
            }
            metadata.apply(answer(1, 0, 2, 4), now);
            assert_eq!(metadata.leader("a", 0), None, "an older epoch");
            metadata.apply(answer(1, 0, 2, 7), now);
            assert_eq!(metadata.leader("a", 0), Some((2, 7)));
            assert_eq!(metadata.moves(), 1);
            metadata.apply(unknowing, now);
            metadata.apply(answer(2, 0, 1, 9), now);
            assert_eq!(metadata.leader("a", 0), Some((1, 9)));
            assert_eq!(metadata.moves(), 1, "another topic of the same name");
        }
    }

    #[test]
    fn forgotten_brokers_lead_nothing_and_topics_stay() {
        let start = Instant::now();
        let mut metadata = Metadata::default();
        metadata.apply(answer(1, 0, 1, 5), start);
        assert!(metadata.tells_of("a"));
        metadata.forget_brokers();
        assert!(!metadata.tells_of("a"), "its broker is gone");
        assert!(metadata.brokers().is_empty());
        assert_eq!(metadata.leader("a", 0), None);
        assert_eq!(metadata.topic("a").unwrap().id, TopicId([1; 16]));
        metadata.apply(answer(1, 0, 2, 4), start);
        assert_eq!(metadata.leader("a", 0), None, "an older epoch");
        metadata.apply(answer(1, 0, 2, 5), start);
        assert_eq!(metadata.leader("a", 0), Some((2, 5)));
    }

    #[test]
    fn a_partition_without_leader_has_none() {
        let mut metadata = Metadata::default();
        metadata.apply(answer(1, 0, -1, 5), Instant::now());
        assert_eq!(metadata.leader("a", 0), None);
        assert_eq!(metadata.leader("b", 0), None);
        let why = |metadata: &Metadata, topic, partition| {
            let said = metadata.why_leaderless(topic, partition);
            said.replace("no leader is known for ", "")
        };
        assert_eq!(why(&metadata, "a", 0), "a-0");
        assert_eq!(why(&metadata, "b", 0), "b-0");
        let of_no_such = "a-7: the topic has no such partition";
        assert_eq!(why(&metadata, "a", 7), of_no_such);
        metadata.apply(answer(0, 29, -1, -1), Instant::now());
        let forbidden = "a-0: TOPIC_AUTHORIZATION_FAILED (29)";
        assert_eq!(why(&metadata, "a", 0), forbidden);
    }

    #[test]
    fn what_a_broker_says_of_the_new_leader_counts_if_it_is_news() {
        let mut metadata = Metadata::default();
        metadata.apply(answer(1, 0, 1, 5), Instant::now());
        let news = |broker, epoch| NewLeader { broker, epoch };
        let id = |byte| TopicId([byte; 16]);
        assert!(!metadata.learn("a", id(1), 0, news(2, 5)));
        assert!(
            !metadata.learn("a", id(1), 0, news(7, 6)),
            "where is broker 7?"
        );
        assert!(
            !metadata.learn("a", id(2), 0, news(2, 6)),
            "it was asked of another topic"
        );
        assert_eq!(metadata.revision(), 1);
        assert!(metadata.learn("a", id(1), 0, news(2, 6)));
        assert_eq!(metadata.revision(), 2);
        assert_eq!(metadata.leader("a", 0), Some((2, 6)));
    }

    #[test]
    fn how_long_a_topic_has_been_unknown_is_remembered() {
        let start = Instant::now();
        let mut metadata = Metadata::default();
        for seconds in [0, 3] {
            metadata.apply(answer(0, 3, -1, -1), start + Duration::from_secs(seconds));
        }
        let facts = metadata.topic("a").unwrap();
        assert_eq!(
            (facts.error, facts.since),
            (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, start)
        );
    }
}

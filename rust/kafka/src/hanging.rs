//! What a transactional id left open in partitions, and how it is ended: docs/adr/0012.
//!
//! A coordinator that left the marker of a transaction out never makes it (Kafka 4.3, partitions without a leader). The
//! partition's leader knows that something is open and whose it is (`DescribeProducers`, KIP-664). Any end of a
//! transaction of that producer which the partition is part of ends it, also one that wrote nothing there: partitions
//! are added by request (`AddPartitionsToTxn` of transaction protocol V1, KIP-98), so nobody ever reads a record of ours.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use eomirror_core::batch::{AbortedFilter, AbortedTransaction, Batches, Verdict};
use eomirror_core::transaction::Identity;
use eomirror_core::transaction::code;

use crate::client::Client;
use crate::error::{Error, ErrorCode, Meaning};
use crate::metadata::Metadata;
use crate::network::Peer;
use crate::protocol::describe_producers::DescribeProducers;
use crate::protocol::describe_transactions::DescribeTransaction;
use crate::protocol::fetch::{
    AnsweredPartition, AnsweredTopic, AskedPartition, AskedTopic, FetchAnswer, FetchRequest,
};
use crate::protocol::transaction::{
    AddPartitions, AddedPartitions, EndTxn, EndTxnV1, FindCoordinator, InitProducerId,
};
use crate::protocol::{IsolationLevel, Request, by_topic};
use crate::topic::TopicId;
use crate::topic::TopicPartition;

/// `OPERATION_NOT_ATTEMPTED`: of the other partitions of a request in which one was refused.
const NOT_ATTEMPTED: i16 = 55;

/// What is read at a time of what stands behind an offset.
const STRETCH: i32 = 4 * 1024 * 1024;

/// `TRANSACTIONAL_ID_NOT_FOUND`.
const ID_NOT_FOUND: i16 = 105;

/// The name of a request, and the code that it was refused with.
type Refusal = (&'static str, i16);

/// An open transaction in a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenProducer {
    /// Where.
    pub partition: TopicPartition,
    /// Whose.
    pub producer_id: i64,
    /// The newest epoch that this producer has written there with.
    pub epoch: i32,
    /// Its first record.
    pub open_from: i64,
}

/// What became of a record that was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordState {
    /// Who reads committed records gets it, unless it was compacted away since.
    Committed,
    /// Some transaction around it was aborted; it may be its own.
    Unknown,
    /// It is behind the last stable offset.
    Pending,
    /// It is not in the log any more.
    Deleted,
    /// We may not read the topic.
    Unreadable,
}

/// Who wrote a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// A producer; one that is not idempotent has the id -1.
    Producer(Identity),
    /// A transaction coordinator: the batch is a marker.
    Coordinator,
}

impl Client {
    /// Open transactions in partitions, asked of their leaders; again while leaders change, until the deadline.
    pub fn open_producers(
        &mut self,
        partitions: &[(&str, i32)],
        deadline: Instant,
    ) -> Result<Vec<OpenProducer>, Error> {
        let asked = |_: &Metadata, partitions: &[(&str, i32)]| DescribeProducers {
            topics: by_topic(partitions),
        };
        let found = self.of_leaders(partitions, deadline, asked, |described| {
            let partitions = described.partitions.into_iter();
            let said = partitions.map(|one| (one.topic, one.partition, one.error, one.producers));
            said.collect()
        })?;
        Ok(found
            .into_iter()
            .flat_map(|(partition, producers)| {
                let open = producers.into_iter().filter(|it| it.open_from >= 0);
                open.map(move |it| OpenProducer {
                    partition: partition.clone(),
                    producer_id: it.producer_id,
                    epoch: it.epoch,
                    open_from: it.open_from,
                })
            })
            .collect())
    }

    /// What became of acknowledged records, one in each partition, and the last stable offset there.
    ///
    /// Costs no more than a batch in each answer, because a broker says which transactions were aborted also where it has
    /// no room for records. It is asked for what stands behind each record, which is the marker of its transaction at the
    /// latest: asked for the record itself, without room for it, it leaves out a transaction that begins there.
    pub fn record_states(
        &mut self,
        offsets: &BTreeMap<(&str, i32), i64>,
        deadline: Instant,
    ) -> Result<Vec<(TopicPartition, RecordState, i64)>, Error> {
        let partitions: Vec<(&str, i32)> = offsets.keys().copied().collect();
        let behind = offsets
            .iter()
            .map(|(at, offset)| (*at, offset.saturating_add(1)))
            .collect();
        let asked = |metadata: &Metadata, partitions: &[(&str, i32)]| {
            fetch(metadata, partitions, &behind, 0)
        };
        let answers = self.of_leaders(&partitions, deadline, asked, answered)?;
        Ok(answers
            .into_iter()
            .map(|(at, said)| {
                let offset = offsets.get(&(at.topic.as_str(), at.partition));
                let fate = offset.map_or(RecordState::Deleted, |offset| state_of(&said, *offset));
                (at, fate, said.last_stable_offset)
            })
            .collect())
    }

    /// Whether the record at an offset was written by this producer with this epoch.
    ///
    /// [`RecordState::Committed`] does not tell: nothing aborted is around a marker either, nor around what others wrote.
    pub fn is_written_by(
        &mut self,
        record: (&str, i32, i64),
        writer: Identity,
        deadline: Instant,
    ) -> Result<bool, Error> {
        let found = self.writer_of(record, deadline)?;
        Ok(found == Some(Writer::Producer(writer)))
    }

    /// Who wrote the batch that holds an offset; None where no batch does: it was deleted or compacted away, or never
    /// written. Reads that one batch. A broker keeps its header also when all of its records were compacted away, if it
    /// is the last batch of its producer.
    pub fn writer_of(
        &mut self,
        (topic, partition, offset): (&str, i32, i64),
        deadline: Instant,
    ) -> Result<Option<Writer>, Error> {
        let at = BTreeMap::from([((topic, partition), offset)]);
        let asked =
            |metadata: &Metadata, partitions: &[(&str, i32)]| fetch(metadata, partitions, &at, 1);
        let found = self.of_leaders(&[(topic, partition)], deadline, asked, answered)?;
        let Some((_, said)) = found.into_iter().next() else {
            return Ok(None);
        };
        let code = ErrorCode(said.error);
        match code.meaning() {
            Meaning::OutOfRange => Ok(None),
            Meaning::Refused => Err(Error::Refused {
                what: format!("Fetch of {topic}-{partition}"),
                code,
            }),
            _ => holder(&said, offset),
        }
    }

    /// Whether committed records of these producers stand behind an offset. Looks no further than `most` bytes, and no
    /// longer than until the deadline: how much others have written there says nothing of the target.
    pub fn has_committed_behind(
        &mut self,
        (topic, partition, offset): (&str, i32, i64),
        producer_ids: &HashSet<i64>,
        most: usize,
        deadline: Instant,
    ) -> Result<bool, Error> {
        let mut at = offset + 1;
        let mut seen = 0;
        while seen < most {
            let asked = |metadata: &Metadata, partitions: &[(&str, i32)]| {
                let offsets = partitions.iter().map(|partition| (*partition, at));
                fetch(metadata, partitions, &offsets.collect(), STRETCH)
            };
            let found = match self.of_leaders(&[(topic, partition)], deadline, asked, answered) {
                Err(Error::TimedOut { .. }) if seen > 0 => return Ok(false),
                found => found?,
            };
            let Some((_, said)) = found.into_iter().next() else {
                return Ok(false);
            };
            if said.error != 0 {
                // deleted, or not ours to read
                return Ok(false);
            }
            seen += said.records.len();
            let (shown, next) = judged(&said, producer_ids)?;
            if shown {
                return Ok(true);
            }
            match next {
                Some(next) if next > at && next < said.last_stable_offset => at = next,
                _ => return Ok(false),
            }
        }
        Ok(false)
    }

    /// The producer id of a transactional id; None where its coordinator knows none.
    pub fn producer_id(
        &mut self,
        transactional_id: &str,
        deadline: Instant,
    ) -> Result<Option<i64>, Error> {
        let request = DescribeTransaction {
            transactional_id: transactional_id.to_owned(),
        };
        let described = self.coordinated(
            transactional_id,
            &request,
            |it| {
                if it.error == ID_NOT_FOUND {
                    0
                } else {
                    it.error
                }
            },
            deadline,
        )?;
        Ok((described.error == 0).then_some(described.producer_id))
    }

    /// Takes over a transactional id, and ends what its producer has open in these partitions. Gives the identity that
    /// it was done with; whoever had the id before is fenced. Who has the id gives his identity as `held`, and is refused
    /// where somebody else has taken it since (KIP-360); -1 and -1 for none.
    pub fn end_hanging(
        &mut self,
        transactional_id: &str,
        timeout: Duration,
        partitions: &[(&str, i32)],
        commit: bool,
        held: (i64, i16),
        deadline: Instant,
    ) -> Result<Identity, Error> {
        let transactional_id = transactional_id.to_owned();
        let given = self.coordinated(
            &transactional_id,
            &InitProducerId {
                transactional_id: transactional_id.clone(),
                timeout_ms: i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX),
                previous: held,
            },
            |given| given.error,
            deadline,
        )?;
        let (producer_id, epoch) = (given.producer_id, given.epoch);
        let add = AddPartitions {
            transactional_id: transactional_id.clone(),
            producer_id,
            epoch,
            topics: by_topic(partitions),
        };
        let end = EndTxnV1(EndTxn {
            transactional_id: transactional_id.clone(),
            producer_id,
            epoch,
            commit,
        });
        // Whoever is gone between the two has opened a transaction that the next InitProducerId aborts, and with it what
        // hangs there: so the end is on its way before anybody has answered.  Where nothing could be added there is
        // nothing to end, and it is refused.
        let mut added = false;
        self.at_coordinator(
            &transactional_id,
            EndTxnV1::API.name,
            deadline,
            |client, peer| {
                let ended = if added {
                    client.call(peer, &end, EndTxnV1::API.name, deadline)
                } else {
                    let (answer, ended) =
                        client.call_both(peer, &add, &end, AddPartitions::API.name, deadline)?;
                    let code = refused_partition(&answer);
                    if code != 0 {
                        return Ok(Err((AddPartitions::API.name, code)));
                    }
                    added = true;
                    ended
                };
                Ok(said(ended?, EndTxnV1::API.name, |it| it.error))
            },
        )?;
        Ok(Identity { producer_id, epoch })
    }

    /// Asks whoever coordinates a transactional id, again while that passes; `code` reads the answer's error.
    fn coordinated<R: Request>(
        &mut self,
        transactional_id: &str,
        request: &R,
        code: impl Fn(&R::Answer) -> i16,
        deadline: Instant,
    ) -> Result<R::Answer, Error> {
        let what = R::API.name;
        self.at_coordinator(transactional_id, what, deadline, |client, peer| {
            let answer = client.call(peer, request, what, deadline)?;
            Ok(said(answer, what, &code))
        })
    }

    /// Asks whoever coordinates a transactional id, again while that passes; `ask` gives what was refused, and why.
    fn at_coordinator<T>(
        &mut self,
        transactional_id: &str,
        what: &'static str,
        deadline: Instant,
        mut ask: impl FnMut(&mut Self, Peer) -> Result<Result<T, Refusal>, Error>,
    ) -> Result<T, Error> {
        let started = self.clock().now();
        let find = FindCoordinator {
            transactional_id: transactional_id.to_owned(),
        };
        loop {
            let found = self.call_any(&find, what, deadline)?;
            let refused = |name: &str, code| Error::Refused {
                what: format!("{name} of {transactional_id}"),
                code: ErrorCode(code),
            };
            let mut trouble = refused(FindCoordinator::API.name, found.error);
            if found.error == 0 {
                // where it listens, if we have not heard of it yet
                self.metadata(&[], deadline)?;
                match ask(self, Peer::Broker(found.broker)) {
                    Ok(Ok(answer)) => return Ok(answer),
                    Ok(Err((_, code @ (code::PRODUCER_FENCED | code::INVALID_PRODUCER_EPOCH)))) => {
                        return Err(Error::Fenced {
                            transactional_id: transactional_id.to_owned(),
                            code: ErrorCode(code),
                        });
                    }
                    Ok(Err((name, code))) => trouble = refused(name, code),
                    Err(error) => trouble = error,
                }
            }
            if trouble.is_final() && !passes(&trouble) {
                return Err(trouble);
            }
            self.rest_before(what, started, deadline, &trouble.to_string())?;
        }
    }
}

/// An answer, or which request was refused, and why.
fn said<T>(answer: T, name: &'static str, code: impl Fn(&T) -> i16) -> Result<T, Refusal> {
    match code(&answer) {
        0 => Ok(answer),
        code => Err((name, code)),
    }
}

/// Why partitions could not be added: of one that was refused itself, if any was.
fn refused_partition(added: &AddedPartitions) -> i16 {
    let codes = added.partitions.iter().map(|(_, _, code)| *code);
    let mut refused = codes.filter(|code| *code != 0);
    let first = refused.clone().find(|code| *code != NOT_ATTEMPTED);
    first.or_else(|| refused.next()).unwrap_or(0)
}

/// A Fetch with so much room in each partition. The first one that has anything brings a batch in any case.
fn fetch(
    metadata: &Metadata,
    partitions: &[(&str, i32)],
    offsets: &BTreeMap<(&str, i32), i64>,
    max_bytes: i32,
) -> FetchRequest {
    let mut topics: BTreeMap<&str, Vec<AskedPartition>> = BTreeMap::new();
    for (topic, index) in partitions {
        let leader = metadata.leader(topic, *index);
        let offset = offsets.get(&(*topic, *index));
        topics.entry(topic).or_default().push(AskedPartition {
            index: *index,
            leader_epoch: leader.map_or(-1, |(_, epoch)| epoch),
            offset: offset.copied().unwrap_or(0),
            last_epoch: -1,
            max_bytes,
        });
    }
    FetchRequest {
        max_wait_ms: 0,
        min_bytes: 0,
        max_bytes: max_bytes.max(1),
        isolation: IsolationLevel::ReadCommitted,
        session_id: 0,
        session_epoch: -1,
        topics: topics
            .into_iter()
            .map(|(name, partitions)| AskedTopic {
                name: name.into(),
                // by name: the answer names it, and nothing of it is believed for longer than this call
                id: TopicId::NONE,
                partitions,
            })
            .collect(),
        forgotten: Vec::new(),
        rack: Arc::default(),
    }
}

/// What an answer says of each partition; that an offset is not there, or is not ours to read, is an answer too.
fn answered(answer: FetchAnswer) -> Vec<(String, i32, i16, AnsweredPartition)> {
    let topics = answer.topics.into_iter();
    let said = topics.flat_map(|topic| {
        let AnsweredTopic {
            name, partitions, ..
        } = topic;
        partitions.into_iter().map(move |one| {
            let told = matches!(
                ErrorCode(one.error).meaning(),
                Meaning::OutOfRange | Meaning::Refused
            );
            let code = if told { 0 } else { one.error };
            (name.clone(), one.index, code, one)
        })
    });
    said.collect()
}

/// Who wrote the batch at an offset.
fn holder(said: &AnsweredPartition, offset: i64) -> Result<Option<Writer>, Error> {
    for batch in Batches::new(&said.records) {
        let batch = batch.map_err(|_| unreadable())?;
        if (batch.base_offset()..=batch.last_offset()).contains(&offset) {
            return Ok(Some(if batch.is_control() {
                Writer::Coordinator
            } else {
                Writer::Producer(Identity {
                    producer_id: batch.producer_id(),
                    epoch: batch.producer_epoch(),
                })
            }));
        }
    }
    Ok(None)
}

fn unreadable() -> Error {
    Error::Malformed {
        peer: "the target".to_owned(),
        what: "record batch",
        reason: "it cannot be read",
    }
}

/// Whether a batch of an answer is committed and of one of these producers, and where the whole batches end.
fn judged(
    said: &AnsweredPartition,
    producer_ids: &HashSet<i64>,
) -> Result<(bool, Option<i64>), Error> {
    let listed = said.aborted.iter().flatten().map(|one| AbortedTransaction {
        producer_id: one.producer_id,
        first_offset: one.first_offset,
    });
    let mut filter = AbortedFilter::new(listed.collect());
    let mut next = None;
    for batch in Batches::new(&said.records) {
        let batch = batch.map_err(|_| unreadable())?;
        let judged = filter.judge(&batch).map_err(|_| unreadable())?;
        if judged.verdict == Verdict::Data && producer_ids.contains(&batch.producer_id()) {
            return Ok((true, next));
        }
        next = Some(judged.next_offset);
    }
    Ok((false, next))
}

fn state_of(said: &AnsweredPartition, offset: i64) -> RecordState {
    match ErrorCode(said.error).meaning() {
        Meaning::OutOfRange => return RecordState::Deleted,
        Meaning::Refused => return RecordState::Unreadable,
        _ => {}
    }
    if offset < said.log_start_offset {
        return RecordState::Deleted;
    }
    if offset >= said.last_stable_offset {
        return RecordState::Pending;
    }
    let aborted = said.aborted.iter().flatten();
    // of transactions that end behind it: the broker tells no others
    if aborted.clone().any(|one| one.first_offset <= offset) {
        RecordState::Unknown
    } else {
        RecordState::Committed
    }
}

/// What a coordinator says for a while.
fn passes(error: &Error) -> bool {
    matches!(
        error,
        Error::Refused {
            code: ErrorCode(
                code::COORDINATOR_LOAD_IN_PROGRESS
                    | code::COORDINATOR_NOT_AVAILABLE
                    | code::NOT_COORDINATOR
                    | code::CONCURRENT_TRANSACTIONS
            ),
            ..
        }
    )
}

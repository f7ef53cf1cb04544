//! Hanging transactions: finding and ending transactions that a transactional id left open in partitions.
//!
//! A coordinator that left out the marker of a transaction never writes it (Kafka 4.3, partitions without a leader).
//! The partition's leader knows the open transaction and its producer (`DescribeProducers`, KIP-664). It ends with any
//! later transaction of that producer that includes the partition, even one that wrote nothing there. Partitions are
//! added by `AddPartitionsToTxn` of transaction protocol V1 (KIP-98), so readers never see an extra record.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error_code::{ErrorCode, Meaning};
use crate::transaction_state::Identity;
use eomirror_batch::{AbortedFilter, Batch, Batches, Mark, Verdict};

use crate::client::Client;
use crate::error::Error;
use crate::metadata::Metadata;
use crate::network::Peer;
use crate::protocol::describe_log_dirs::DescribeLogDirs;
use crate::protocol::describe_producers::{ActiveProducer, DescribeProducers};
use crate::protocol::describe_transactions::DescribeTransaction;
use crate::protocol::fetch::{
    AnsweredPartition, AnsweredTopic, AskedPartition, AskedTopic, FetchAnswer, FetchRequest,
};
use crate::protocol::list_transactions::ListTransactions;
use crate::protocol::transaction::{
    AddPartitions, EndTxn, EndTxnV1, FindCoordinator, InitProducerId,
};
use crate::protocol::{IsolationLevel, Request, by_topic};
use crate::topic::TopicId;
use crate::topic::TopicPartition;

/// Bytes per Fetch when committed records are searched.
const STRETCH: i32 = 4 * 1024 * 1024;

/// Size of a batch, and of all batches of a broker, in bytes, that one request for many partitions has room for.
const SMALL_BATCH: i32 = 16 * 1024;
const SMALL_BATCHES: i32 = 16 * 1024 * 1024;

/// A refused request: its name and error code.
type Rejection = (&'static str, ErrorCode);

/// An open transaction in a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenProducer {
    /// The partition.
    pub partition: TopicPartition,
    /// Its producer.
    pub producer_id: i64,
    /// The newest epoch with which this producer has written there.
    pub epoch: i32,
    /// Offset of its first record.
    pub open_from: i64,
}

/// An open transaction in a partition, with what its coordinator knows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenTransaction {
    /// The partition, and the producer.
    pub producer: OpenProducer,
    /// Its transactional id; None where no coordinator shows one.
    pub transactional_id: Option<String>,
    /// When it began, in ms since the epoch, and the time in ms after which its coordinator aborts it; None where the
    /// coordinator does not know it as open.
    pub timeout: Option<(i64, i32)>,
}

/// The state of an acknowledged record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordState {
    /// Visible to read-committed consumers, unless it was compacted away since.
    Committed,
    /// A transaction around it was aborted, possibly its own.
    Unknown,
    /// After the last stable offset.
    Pending,
    /// Not in the log any more.
    Deleted,
    /// The user may not read the topic.
    Unreadable,
}

/// The writer of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// A producer; the id is -1 for one that is not idempotent.
    Producer(Identity),
    /// A transaction coordinator: the batch is a marker.
    Coordinator,
}

/// A batch of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundBatch {
    /// Its identity in this log.
    pub mark: Mark,
    /// Its last offset.
    pub last_offset: i64,
    /// Its writer.
    pub writer: Writer,
    /// True for a batch of a transaction.
    pub is_transactional: bool,
}

impl FoundBatch {
    /// Returns the description of a batch.
    #[must_use]
    pub fn of(batch: &Batch<'_>) -> Self {
        Self {
            mark: Mark::of(batch),
            last_offset: batch.last_offset(),
            is_transactional: batch.is_transactional(),
            writer: if batch.is_control() {
                Writer::Coordinator
            } else {
                Writer::Producer(Identity {
                    producer_id: batch.producer_id(),
                    epoch: batch.producer_epoch(),
                })
            },
        }
    }
}

/// Finds and ends hanging transactions of a cluster.
pub struct HangingTransactions {
    client: Client,
}

impl HangingTransactions {
    /// Returns one that asks with this client.
    #[must_use]
    pub const fn new(client: Client) -> Self {
        Self { client }
    }

    /// Returns the open transactions in partitions, from their leaders. Retries leader changes until the deadline.
    pub fn open_producers(
        &mut self,
        partitions: &[(&str, i32)],
        deadline: Instant,
    ) -> Result<Vec<OpenProducer>, Error> {
        let found = self.described(partitions, deadline)?;
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

    /// Returns the state of acknowledged records, one for each partition, and the partition's last stable offset.
    ///
    /// Each answer has at most one batch, because a broker lists aborted transactions even without room for records. It
    /// is asked for the offset behind each record, which is at the latest the marker of its transaction: asked for the
    /// record itself, it would omit a transaction that begins there.
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
            fetch(metadata, partitions, &behind, 0, 0)
        };
        let answers = self
            .client
            .of_leaders(&partitions, deadline, asked, answered)?;
        Ok(answers
            .into_iter()
            .map(|(at, said)| {
                let offset = offsets.get(&(at.topic.as_str(), at.partition));
                let state = offset.map_or(RecordState::Deleted, |offset| state_of(&said, *offset));
                (at, state, said.last_stable_offset)
            })
            .collect())
    }

    /// Returns whether the record at an offset was written by this producer with this epoch.
    ///
    /// [`RecordState::Committed`] does not prove that: markers and records of other producers are not in aborted
    /// transactions either.
    pub fn is_written_by(
        &mut self,
        record: (&str, i32, i64),
        writer: Identity,
        deadline: Instant,
    ) -> Result<bool, Error> {
        let found = self.writer_of(record, deadline)?;
        Ok(found == Some(Writer::Producer(writer)))
    }

    /// Returns the writer of the batch that contains an offset; None when no batch does.
    pub fn writer_of(
        &mut self,
        record: (&str, i32, i64),
        deadline: Instant,
    ) -> Result<Option<Writer>, Error> {
        let found = self.batch_at(record, deadline)?;
        Ok(found.map(|batch| batch.writer))
    }

    /// Returns the batch that contains an offset; None when no batch does. Reads that one batch. A broker keeps the
    /// header of a batch whose records were all compacted away if it is the last one of its producer.
    pub fn batch_at(
        &mut self,
        (topic, partition, offset): (&str, i32, i64),
        deadline: Instant,
    ) -> Result<Option<FoundBatch>, Error> {
        let said = self.fetched((topic, partition, offset), 1, deadline)?;
        let Some(said) = said else { return Ok(None) };
        for batch in Batches::new(&said.records) {
            let batch = batch.map_err(|_| unreadable())?;
            if (batch.base_offset()..=batch.last_offset()).contains(&offset) {
                return Ok(Some(FoundBatch::of(&batch)));
            }
        }
        Ok(None)
    }

    /// Returns the batches that contain these offsets, one for each partition; no batch of a partition where none does.
    ///
    /// One request to each leader brings the small ones. A broker sends no batch that does not fit, so what is missing is
    /// asked for alone.
    pub fn batches_at(
        &mut self,
        offsets: &BTreeMap<(&str, i32), i64>,
        deadline: Instant,
    ) -> Result<Vec<(TopicPartition, FoundBatch)>, Error> {
        let partitions: Vec<(&str, i32)> = offsets.keys().copied().collect();
        let asked = |metadata: &Metadata, partitions: &[(&str, i32)]| {
            fetch(metadata, partitions, offsets, SMALL_BATCH, SMALL_BATCHES)
        };
        let answers = self
            .client
            .of_leaders(&partitions, deadline, asked, answered)?;
        let told: BTreeMap<(String, i32), AnsweredPartition> = answers
            .into_iter()
            .map(|(at, said)| ((at.topic, at.partition), said))
            .collect();
        let mut found = Vec::new();
        for (&(topic, partition), &offset) in offsets {
            let at = (topic.to_owned(), partition);
            let said = told.get(&at);
            if said.is_some_and(|said| said.error.meaning() == Meaning::OutOfRange) {
                continue;
            }
            let batch = match said.and_then(|said| batch_with(said, offset)) {
                Some(batch) => Some(batch),
                None => self.batch_at((topic, partition, offset), deadline)?,
            };
            if let Some(batch) = batch {
                let (topic, partition) = at;
                found.push((TopicPartition { topic, partition }, batch));
            }
        }
        Ok(found)
    }

    /// Calls `each` with every batch of committed records that has offsets in a range, in order.
    ///
    /// Returns the offset up to which the log was read: the end of the range, unless the log, or what is stable of it,
    /// ends before.
    pub fn committed(
        &mut self,
        (topic, partition): (&str, i32),
        range: Range<i64>,
        deadline: Instant,
        mut each: impl FnMut(&Batch<'_>) -> Result<(), Error>,
    ) -> Result<i64, Error> {
        let mut at = range.start;
        while at < range.end {
            let said = self.fetched((topic, partition, at), STRETCH, deadline)?;
            let Some(said) = said else { break };
            let mut filter = AbortedFilter::new(said.aborted.clone().unwrap_or_default());
            let mut next = at;
            for batch in Batches::new(&said.records) {
                let batch = batch.map_err(|_| unreadable())?;
                let judged = filter.judge(&batch).map_err(|_| unreadable())?;
                if batch.base_offset() >= range.end {
                    return Ok(range.end);
                }
                if judged.verdict == Verdict::Data && judged.next_offset > at {
                    each(&batch)?;
                }
                next = next.max(judged.next_offset);
            }
            if next == at || next >= said.last_stable_offset {
                return Ok(next.min(range.end));
            }
            at = next;
        }
        Ok(at.min(range.end))
    }

    /// Returns the id of the cluster; empty if the brokers report none.
    pub fn cluster_id(&mut self, deadline: Instant) -> Result<String, Error> {
        self.client.metadata(&[], deadline)?;
        let id = self.client.cached_metadata().cluster_id();
        Ok(id.unwrap_or_default().to_owned())
    }

    /// Returns what a Fetch from an offset brings; None if the log does not hold the offset.
    fn fetched(
        &mut self,
        (topic, partition, offset): (&str, i32, i64),
        max_bytes: i32,
        deadline: Instant,
    ) -> Result<Option<AnsweredPartition>, Error> {
        let at = BTreeMap::from([((topic, partition), offset)]);
        let asked = |metadata: &Metadata, partitions: &[(&str, i32)]| {
            fetch(metadata, partitions, &at, max_bytes, max_bytes)
        };
        let found = self
            .client
            .of_leaders(&[(topic, partition)], deadline, asked, answered)?;
        let Some((_, said)) = found.into_iter().next() else {
            return Ok(None);
        };
        match said.error.meaning() {
            Meaning::OutOfRange => Ok(None),
            Meaning::Refused => Err(Error::Refused {
                what: format!("Fetch of {topic}-{partition}"),
                code: said.error,
            }),
            _ => Ok(Some(said)),
        }
    }

    /// Returns whether committed records of these producers follow an offset. Reads at most `most` bytes, and not past
    /// the deadline: the volume of other producers says nothing of the target.
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
                fetch(metadata, partitions, &offsets.collect(), STRETCH, STRETCH)
            };
            let found =
                match self
                    .client
                    .of_leaders(&[(topic, partition)], deadline, asked, answered)
                {
                    Err(Error::TimedOut { .. }) if seen > 0 => return Ok(false),
                    found => found?,
                };
            let Some((_, said)) = found.into_iter().next() else {
                return Ok(false);
            };
            if !said.error.is_none() {
                // deleted, or the user may not read it
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

    /// Returns producer id and epoch of a transactional id; None when its coordinator knows none.
    pub fn producer_identity(
        &mut self,
        transactional_id: &str,
        deadline: Instant,
    ) -> Result<Option<(i64, i16)>, Error> {
        let request = DescribeTransaction {
            transactional_id: transactional_id.to_owned(),
        };
        let described = self.coordinated(
            transactional_id,
            &request,
            |it| {
                if it.error == ErrorCode::TRANSACTIONAL_ID_NOT_FOUND {
                    ErrorCode::NONE
                } else {
                    it.error
                }
            },
            deadline,
        )?;
        Ok(
            (described.error.is_none())
                .then_some((described.producer_id, described.producer_epoch)),
        )
    }

    /// Takes over a transactional id, and ends its producer's open transactions in these partitions. Returns the
    /// identity that was used; the previous owner is fenced. The owner passes its identity as `held`, and is refused if
    /// another producer has taken the id since (KIP-360); -1 and -1 for none.
    pub fn end(
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
        // A client that is killed between the two requests has opened a transaction that the next InitProducerId
        // aborts, and with it the hanging records.  So both are sent before either is answered.  If no partition could
        // be added there is nothing to end, and the coordinator refuses it.
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
                    if !code.is_none() {
                        return Ok(Err((AddPartitions::API.name, code)));
                    }
                    added = true;
                    ended
                };
                Ok(said(ended?, EndTxnV1::API.name, |code| *code))
            },
        )?;
        Ok(Identity { producer_id, epoch })
    }

    /// Returns partitions with the transactional ids that have written there; producers without one are left out.
    pub fn writers(
        &mut self,
        partitions: &[(&str, i32)],
        deadline: Instant,
    ) -> Result<Vec<(TopicPartition, String)>, Error> {
        let found = self.described(partitions, deadline)?;
        let mut wrote: BTreeMap<i64, Vec<TopicPartition>> = BTreeMap::new();
        for (partition, producers) in found {
            for producer in producers {
                let where_ = wrote.entry(producer.producer_id).or_default();
                where_.push(partition.clone());
            }
        }
        let mut writers = Vec::new();
        for (_, transactional_id, producer_id) in
            self.listed(wrote.keys().copied().collect(), deadline)?
        {
            let partitions = wrote.get(&producer_id).into_iter().flatten();
            writers.extend(partitions.map(|it| (it.clone(), transactional_id.clone())));
        }
        Ok(writers)
    }

    /// Returns the open transactions in partitions, with what their coordinators know of them.
    pub fn open_transactions(
        &mut self,
        partitions: &[(&str, i32)],
        deadline: Instant,
    ) -> Result<Vec<OpenTransaction>, Error> {
        let found = self.open_producers(partitions, deadline)?;
        let producer_ids: BTreeSet<i64> = found.iter().map(|it| it.producer_id).collect();
        let listed = self.listed(producer_ids.into_iter().collect(), deadline)?;
        let what = DescribeTransaction::API.name;
        let mut known = BTreeMap::new();
        for (broker, transactional_id, producer_id) in listed {
            let request = DescribeTransaction {
                transactional_id: transactional_id.clone(),
            };
            // the broker that lists an id is its coordinator
            let told = self
                .client
                .call(Peer::Broker(broker), &request, what, deadline)?;
            let timeout = (told.error.is_none() && told.is_ongoing)
                .then_some((told.started_ms, told.timeout_ms));
            known.insert(producer_id, (transactional_id, timeout));
        }
        Ok(found
            .into_iter()
            .map(|producer| {
                let told = known.get(&producer.producer_id);
                OpenTransaction {
                    transactional_id: told.map(|(id, _)| id.clone()),
                    timeout: told.and_then(|(_, timeout)| *timeout),
                    producer,
                }
            })
            .collect())
    }

    /// Returns the bytes of the leaders' logs of partitions, where they are known: one request to each broker.
    pub fn log_sizes(
        &mut self,
        partitions: &[(&str, i32)],
        deadline: Instant,
    ) -> Result<Vec<(TopicPartition, i64)>, Error> {
        let what = DescribeLogDirs::API.name;
        let topics: BTreeSet<&str> = partitions.iter().map(|(topic, _)| *topic).collect();
        let topics: Vec<&str> = topics.into_iter().collect();
        let metadata = self.client.metadata(&topics, deadline)?;
        let mut led: BTreeMap<i32, Vec<(&str, i32)>> = BTreeMap::new();
        for (topic, partition) in partitions {
            if let Some((leader, _)) = metadata.leader(topic, *partition) {
                led.entry(leader).or_default().push((topic, *partition));
            }
        }
        let mut sizes = Vec::with_capacity(partitions.len());
        for (leader, asked) in led {
            let request = DescribeLogDirs {
                topics: by_topic(&asked),
            };
            let answer =
                self.client
                    .call_for_now(Peer::Broker(leader), &request, what, deadline)?;
            if !answer.error.is_none() {
                return Err(Error::Refused {
                    what: what.to_owned(),
                    code: answer.error,
                });
            }
            sizes.extend(
                answer
                    .sizes
                    .into_iter()
                    .map(|(topic, partition, size)| (TopicPartition { topic, partition }, size)),
            );
        }
        Ok(sizes)
    }

    /// Returns the transactional ids of producers, each with the broker that coordinates it and the producer; none of
    /// brokers before Kafka 3.0, which do not list them.
    fn listed(
        &mut self,
        producer_ids: Vec<i64>,
        deadline: Instant,
    ) -> Result<Vec<(i32, String, i64)>, Error> {
        if producer_ids.is_empty() {
            return Ok(Vec::new());
        }
        let request = ListTransactions { producer_ids };
        let what = ListTransactions::API.name;
        // each coordinator has its own ids
        let brokers: Vec<i32> = self
            .client
            .cached_metadata()
            .brokers()
            .keys()
            .copied()
            .collect();
        let mut found = Vec::new();
        for broker in brokers {
            let answer = match self
                .client
                .call(Peer::Broker(broker), &request, what, deadline)
            {
                Err(Error::Unsupported { .. }) => continue,
                answer => answer?,
            };
            if !answer.error.is_none() {
                return Err(Error::Refused {
                    what: format!("{what} of broker {broker}"),
                    code: answer.error,
                });
            }
            let listed = answer.listed.into_iter();
            found
                .extend(listed.map(|(transactional_id, producer_id)| {
                    (broker, transactional_id, producer_id)
                }));
        }
        Ok(found)
    }

    /// Returns the producers that have written to partitions, from their leaders.
    fn described(
        &mut self,
        partitions: &[(&str, i32)],
        deadline: Instant,
    ) -> Result<Vec<(TopicPartition, Vec<ActiveProducer>)>, Error> {
        let asked = |_: &Metadata, partitions: &[(&str, i32)]| DescribeProducers {
            topics: by_topic(partitions),
        };
        self.client
            .of_leaders(partitions, deadline, asked, |described| {
                let said = described
                    .into_iter()
                    .map(|one| (one.topic, one.partition, one.error, one.producers));
                said.collect()
            })
    }

    /// Sends a request to the coordinator of a transactional id, with retries; `code` returns the answer's error code.
    fn coordinated<R: Request>(
        &mut self,
        transactional_id: &str,
        request: &R,
        code: impl Fn(&R::Answer) -> ErrorCode,
        deadline: Instant,
    ) -> Result<R::Answer, Error> {
        let what = R::API.name;
        self.at_coordinator(transactional_id, what, deadline, |client, peer| {
            let answer = client.call(peer, request, what, deadline)?;
            Ok(said(answer, what, &code))
        })
    }

    /// Calls `ask` with the coordinator of a transactional id, with retries; `ask` returns the refused request, if any.
    fn at_coordinator<T>(
        &mut self,
        transactional_id: &str,
        what: &'static str,
        deadline: Instant,
        mut ask: impl FnMut(&mut Client, Peer) -> Result<Result<T, Rejection>, Error>,
    ) -> Result<T, Error> {
        let started = self.client.clock().now();
        let find = FindCoordinator {
            transactional_id: transactional_id.to_owned(),
        };
        loop {
            let found = self.client.call_any(&find, what, deadline)?;
            let refused = |name: &str, code| Error::Refused {
                what: format!("{name} of {transactional_id}"),
                code,
            };
            let mut trouble = refused(FindCoordinator::API.name, found.error);
            if found.error.is_none() {
                // learns its address, if it is new
                self.client.metadata(&[], deadline)?;
                match ask(&mut self.client, Peer::Broker(found.broker)) {
                    Ok(Ok(answer)) => return Ok(answer),
                    Ok(Err((
                        _,
                        code @ (ErrorCode::PRODUCER_FENCED | ErrorCode::INVALID_PRODUCER_EPOCH),
                    ))) => {
                        return Err(Error::Fenced {
                            transactional_id: transactional_id.to_owned(),
                            code,
                        });
                    }
                    Ok(Err((name, code))) => trouble = refused(name, code),
                    Err(error) => trouble = error,
                }
            }
            let passes = matches!(&trouble, Error::Refused { code, .. } if code.is_passing_for_coordinator());
            if trouble.is_final() && !passes {
                return Err(trouble);
            }
            self.client
                .rest_before(what, started, deadline, &trouble.to_string())?;
        }
    }
}

/// Returns an answer, or the refused request.
fn said<T>(answer: T, name: &'static str, code: impl Fn(&T) -> ErrorCode) -> Result<T, Rejection> {
    match code(&answer) {
        ErrorCode::NONE => Ok(answer),
        code => Err((name, code)),
    }
}

/// Returns the error code of the partition that was refused itself, if any was.
fn refused_partition(added: &[(String, i32, ErrorCode)]) -> ErrorCode {
    let codes = added.iter().map(|(_, _, code)| *code);
    let mut refused = codes.filter(|code| !code.is_none());
    // the others of a request in which one was refused
    let first = refused
        .clone()
        .find(|code| *code != ErrorCode::OPERATION_NOT_ATTEMPTED);
    first.or_else(|| refused.next()).unwrap_or_default()
}

/// Returns a Fetch with this many bytes for each partition. The first partition with records returns at least one
/// batch.
fn fetch(
    metadata: &Metadata,
    partitions: &[(&str, i32)],
    offsets: &BTreeMap<(&str, i32), i64>,
    max_bytes: i32,
    room: i32,
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
        max_bytes: room.max(1),
        isolation: IsolationLevel::ReadCommitted,
        session_id: 0,
        session_epoch: -1,
        topics: topics
            .into_iter()
            .map(|(name, partitions)| AskedTopic {
                name: name.into(),
                // by name: the answer repeats it, and it is used for this call only
                id: TopicId::NONE,
                partitions,
            })
            .collect(),
        forgotten: Vec::new(),
        rack: Arc::default(),
    }
}

/// Returns the batch of an answer that contains an offset, if all of it is there.
fn batch_with(said: &AnsweredPartition, offset: i64) -> Option<FoundBatch> {
    Batches::new(&said.records)
        .map_while(Result::ok)
        .find(|batch| (batch.base_offset()..=batch.last_offset()).contains(&offset))
        .map(|batch| FoundBatch::of(&batch))
}

/// Returns the answer for each partition. A missing offset or right is an answer, too.
fn answered(answer: FetchAnswer) -> Vec<(String, i32, ErrorCode, AnsweredPartition)> {
    let topics = answer.topics.into_iter();
    let said = topics.flat_map(|topic| {
        let AnsweredTopic {
            name, partitions, ..
        } = topic;
        partitions.into_iter().map(move |one| {
            let told = matches!(one.error.meaning(), Meaning::OutOfRange | Meaning::Refused);
            let code = if told { ErrorCode::NONE } else { one.error };
            (name.clone(), one.index, code, one)
        })
    });
    said.collect()
}

fn unreadable() -> Error {
    Error::Malformed {
        peer: "the target".to_owned(),
        what: "record batch",
        reason: "it cannot be read",
    }
}

/// Returns whether a batch is committed and written by one of these producers, and the end of the whole batches.
fn judged(
    said: &AnsweredPartition,
    producer_ids: &HashSet<i64>,
) -> Result<(bool, Option<i64>), Error> {
    let mut filter = AbortedFilter::new(said.aborted.clone().unwrap_or_default());
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
    match said.error.meaning() {
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
    // transactions that end later: the broker lists no others
    if aborted.clone().any(|one| one.first_offset <= offset) {
        RecordState::Unknown
    } else {
        RecordState::Committed
    }
}

//! The open transaction of a lane: the accounts of its source partitions, and the positions that it commits. Pure, but
//! for handing batches to the producer.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use eomirror_batch::{BatchError, HEADER_SIZE, Stamp};
use eomirror_core::relay::{Content, Outgoing};
use eomirror_kafka::{Acknowledgement, Error, SourceRange, TopicPartition, TransactionalProducer};

use super::Pumped;
use super::account::{Account, Book};
use super::consumer::{LaneSource, Ready};
use super::failure::Failure;
use super::source_partition::SourcePartition;

/// A commit writes one control batch of one record to each partition of the transaction.
const MARKER: i64 = 1;

/// The state that a commit makes permanent.
pub(super) struct Committed {
    /// Next offset of each source partition, by its number.
    pub(super) positions: BTreeMap<u32, i64>,
    /// Next offset of each target partition.
    pub(super) next_offsets: BTreeMap<TopicPartition, i64>,
}

/// Tracks what the open transaction holds.
#[derive(Default)]
pub(super) struct OpenTransaction {
    /// By number of the source partition.
    books: BTreeMap<u32, Book>,
    /// Next source offsets as of [`OpenTransaction::settle`].
    settled: BTreeMap<u32, i64>,
    /// Next target offsets once the settled transaction is committed.
    written: BTreeMap<TopicPartition, i64>,
    bytes: u64,
    /// A partition has as many runs as a transaction should hold of one.
    crowded: bool,
}

impl OpenTransaction {
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.books.is_empty()
    }

    pub(super) fn holds(&self, number: u32) -> bool {
        self.books.contains_key(&number)
    }

    /// Returns the numbers of the source partitions that it holds records of.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.books.keys().copied()
    }

    /// Returns the bytes of all batches that were sent in it.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns whether it takes more records, when `most` bytes are its limit.
    pub(super) const fn has_room(&self, most: u64) -> bool {
        self.bytes < most && !self.crowded
    }

    /// Hands the batches of an answer to the producer.
    pub(super) fn send(
        &mut self,
        mut ready: Ready,
        partition: &SourcePartition,
        producer: &mut TransactionalProducer,
        pumped: &mut Pumped,
    ) -> Result<Ready, Error> {
        let (number, began) = (ready.number(), ready.answer.began);
        let book = self.books.entry(number).or_insert_with(|| Book::new(began));
        for batch in std::mem::take(&mut ready.relayed.batches) {
            let (count, size) = (batch.count(), batch.size());
            let range = SourceRange {
                partition: number,
                first: batch.first_offset(),
                last: batch.last_offset(),
            };
            let mut target = Cow::Borrowed(&partition.target);
            if partition.places_by_key() {
                book.placed(&batch);
                target.to_mut().partition = batch.partition();
            } else {
                book.sent(batch.runs(), size);
            }
            let fetched = &ready.answer.bytes;
            producer.send_stamped(&target, count, range, |stamp| {
                stamped(batch, fetched, stamp)
            })?;
            pumped.records += u64::from(count.unsigned_abs());
            pumped.bytes += size as u64;
            self.bytes += size as u64;
        }
        let relayed = &ready.relayed;
        book.fetched(
            &relayed.accounting,
            relayed.next_position,
            relayed.max_timestamp,
        );
        self.crowded |= book.is_full();
        Ok(ready)
    }

    /// Enters the target offsets of acknowledged batches.
    pub(super) fn acknowledged(&mut self, acknowledged: Vec<Acknowledgement>) {
        for one in acknowledged {
            if let Some(book) = self.books.get_mut(&one.source.partition) {
                book.acknowledged(one.source.first, one.base_offset);
            }
        }
    }

    /// Returns the accounts, if they balance (rule 7).
    pub(super) fn settle(&mut self, source: &LaneSource) -> Result<Vec<Account>, Failure> {
        let mut accounts = Vec::with_capacity(self.books.len());
        for (number, book) in &self.books {
            let SourcePartition {
                partition, target, ..
            } = source.partition(*number);
            let account = book.settle(partition, target)?;
            for (target, _, last) in account.written() {
                let next = self.written.entry(target).or_insert(0);
                *next = (*next).max(last.saturating_add(1 + MARKER));
            }
            accounts.push(account);
        }
        self.settled.extend(source.moved());
        Ok(accounts)
    }

    /// Returns the accounts as they will settle if no other producer writes to the target partitions; see
    /// [`super::Lane::speculative_accounts`].
    pub(super) fn speculative_accounts(
        &self,
        source: &LaneSource,
        next_offset: impl Fn(&TopicPartition) -> Option<i64>,
    ) -> Option<Vec<Account>> {
        let mut seen = BTreeSet::new();
        let mut accounts = Vec::with_capacity(self.books.len());
        for (number, book) in &self.books {
            let part = source.partition(*number);
            let SourcePartition {
                partition, target, ..
            } = part;
            // other lanes write to the same target partitions
            if part.places_by_key() || !seen.insert(target) {
                return None;
            }
            accounts.push(
                book.settle_speculatively(partition, target, next_offset(target)?)
                    .ok()?,
            );
        }
        Some(accounts)
    }

    /// Returns what a commit has made permanent, and forgets the transaction. Only settled positions are included: a
    /// claim commits none, although partitions may have advanced.
    pub(super) fn take_committed(&mut self) -> Committed {
        self.books.clear();
        Committed {
            positions: std::mem::take(&mut self.settled),
            next_offsets: std::mem::take(&mut self.written),
        }
    }

    /// Makes it as full as a partition with very many gaps does.
    #[cfg(test)]
    pub(super) const fn crowd(&mut self) {
        self.crowded = true;
    }

    /// Makes it hold an empty account of a source partition.
    #[cfg(test)]
    pub(super) fn hold(&mut self, number: u32) {
        self.books.insert(number, Book::new(0));
    }
}

/// Returns header and body of a batch that the relay made of `fetched`, under a producer's stamp.
fn stamped(
    mut batch: Outgoing,
    fetched: &Bytes,
    stamp: &Stamp,
) -> Result<([u8; HEADER_SIZE], Bytes), BatchError> {
    batch.stamp(fetched, stamp)?;
    Ok(match batch.into_content() {
        Content::Passed { head, body } => (head, fetched.slice(body)),
        Content::Written(bytes) => {
            let bytes = Bytes::from(bytes);
            // stamping has proved that the header is whole
            let head = bytes.first_chunk().copied().unwrap_or([0; HEADER_SIZE]);
            (head, bytes.slice(HEADER_SIZE.min(bytes.len())..))
        }
    })
}

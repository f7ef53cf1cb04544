//! The account of one source partition in the open transaction (rule 7). Pure.

use std::collections::BTreeMap;

use eomirror_core::DropReason;
use eomirror_core::offset_map::{OffsetMap, Range};
use eomirror_core::relay::{Accounting, Outgoing, SourceRun};

use super::failure::Failure;
use eomirror_kafka::TopicPartition;

/// The result of one transaction for one source partition: fetched = acknowledged + dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The source partition.
    pub source: TopicPartition,
    /// The target partition; where records are placed by key, that of the last acknowledged record.
    pub target: TopicPartition,
    /// Records that were fetched.
    pub fetched: u64,
    /// Records that the target acknowledged.
    pub acknowledged: u64,
    /// Bytes of their batches on the wire.
    pub bytes: u64,
    /// Records that were dropped on purpose, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Acknowledged records that rules of the transform changed, by rule.
    pub changed: BTreeMap<&'static str, u64>,
    /// Acknowledged records with the provenance header of another record: an application copied it.
    pub copied_headers: u64,
    /// Source offset of the first acknowledged record, or the first fetched offset when there is none.
    pub first_source_offset: i64,
    /// Source offset behind the last fetched record.
    pub next_source_offset: i64,
    /// Largest timestamp of the acknowledged records, ms; -1 when there are none.
    pub timestamp: i64,
    /// First and last target offset in `target`; None when nothing was acknowledged.
    pub target_offsets: Option<(i64, i64)>,
    /// Target partitions with acknowledged records, if these are placed by key: partition, and offsets of the first and
    /// the last record there, in order of the partition.
    pub placed: Vec<(i32, i64, i64)>,
    /// Chunk of the offset map; empty when nothing was acknowledged, or where records are placed by key.
    pub offset_map: Vec<u8>,
}

impl Account {
    /// Returns the target partitions with acknowledged records, and the first and the last offset there.
    pub(super) fn written(&self) -> impl Iterator<Item = (TopicPartition, i64, i64)> {
        let whole = self.target_offsets.filter(|_| self.placed.is_empty());
        let whole = whole.map(|(first, last)| (self.target.partition, first, last));
        let parts = self.placed.iter().copied().chain(whole);
        parts.map(|(number, first, last)| {
            let partition = TopicPartition::new(self.target.topic.clone(), number);
            (partition, first, last)
        })
    }
}

/// A batch that was sent.
#[derive(Debug)]
struct Flight {
    offsets: Offsets,
    /// Target offset of its first record, once acknowledged.
    base: Option<i64>,
}

/// Source offsets of a batch.
#[derive(Debug)]
enum Offsets {
    /// All of them, for the offset map.
    Mapped(Vec<SourceRun>),
    /// Records of one target partition, where they are placed by key.
    Placed {
        partition: i32,
        count: i64,
        /// Offset of the last record.
        last: i64,
    },
}

impl Offsets {
    fn count(&self) -> i64 {
        match self {
            Self::Mapped(runs) => runs.iter().map(|run| run.count).sum(),
            Self::Placed { count, .. } => *count,
        }
    }
}

/// Acknowledged records of a source partition in one of several target partitions.
struct Part {
    first: i64,
    last: i64,
    /// Source offset of the last record.
    source: i64,
}

/// The open account of a source partition.
#[derive(Debug)]
pub(super) struct Book {
    books: Accounting,
    bytes: u64,
    began: i64,
    next: i64,
    timestamp: i64,
    /// By source offset of the first record: acknowledgements may arrive in any order, maps may not.
    flights: BTreeMap<i64, Flight>,
    /// Runs of consecutive source offsets in all batches.
    runs: usize,
}

/// Number of runs at which a transaction takes no more of a partition. Each run may become a range of the offset map,
/// of 3 to 6 bytes. All of them are one record of a topic with the default limit of a megabyte. The last answer may add
/// [`eomirror_core::relay::Target::most_runs`] more.
pub(super) const MOST_RUNS: usize = 100_000;

impl Book {
    /// Returns the empty account of a partition from an offset on.
    pub(super) fn new(began: i64) -> Self {
        Self {
            books: Accounting::default(),
            bytes: 0,
            began,
            next: began,
            timestamp: -1,
            flights: BTreeMap::new(),
            runs: 0,
        }
    }

    /// Returns whether it has as many runs as a transaction may hold of a partition: compaction leaves gaps everywhere.
    pub(super) fn is_full(&self) -> bool {
        self.runs >= MOST_RUNS
    }

    /// Enters a batch that was sent.
    pub(super) fn sent(&mut self, runs: &[SourceRun], bytes: usize) {
        let Some(first) = runs.first().map(|run| run.first) else {
            return;
        };
        self.runs += runs.len();
        self.enter(first, bytes, Offsets::Mapped(runs.to_vec()));
    }

    /// Enters a batch of records that are placed by key.
    pub(super) fn placed(&mut self, batch: &Outgoing) {
        let offsets = Offsets::Placed {
            partition: batch.partition(),
            count: i64::from(batch.count()),
            last: batch.last_offset(),
        };
        self.enter(batch.first_offset(), batch.size(), offsets);
    }

    fn enter(&mut self, first: i64, bytes: usize, offsets: Offsets) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        let base = None;
        self.flights.insert(first, Flight { offsets, base });
    }

    /// Enters an answer whose records are all sent or dropped.
    pub(super) fn fetched(&mut self, books: &Accounting, next: i64, timestamp: i64) {
        self.books.add(books);
        self.next = self.next.max(next);
        self.timestamp = self.timestamp.max(timestamp);
    }

    /// Enters the target offset of the batch whose first record has this source offset.
    pub(super) fn acknowledged(&mut self, first: i64, base: Option<i64>) {
        if let Some(flight) = self.flights.get_mut(&first) {
            flight.base = base;
        }
    }

    /// Returns the account, if it balances.
    pub(super) fn settle(
        &self,
        source: &TopicPartition,
        target: &TopicPartition,
    ) -> Result<Account, Failure> {
        self.account(source, target, |flight| flight.base)
    }

    /// Returns the account as it will be if the first record gets this target offset, and no other producer writes
    /// there.
    pub(super) fn settle_speculatively(
        &self,
        source: &TopicPartition,
        target: &TopicPartition,
        mut next: i64,
    ) -> Result<Account, Failure> {
        self.account(source, target, |flight| {
            let base = next;
            next = next.saturating_add(flight.offsets.count());
            Some(base)
        })
    }

    fn account(
        &self,
        source: &TopicPartition,
        target: &TopicPartition,
        mut base_of: impl FnMut(&Flight) -> Option<i64>,
    ) -> Result<Account, Failure> {
        let unaccounted =
            |what: String| Failure::unaccounted(format!("{source}: {what}")).about(source);
        let mut map = OffsetMap::default();
        let mut parts: BTreeMap<i32, Part> = BTreeMap::new();
        let mut acknowledged = 0_u64;
        for (first, flight) in &self.flights {
            let Some(mut base) = base_of(flight) else {
                return Err(unaccounted(format!(
                    "the batch from offset {first} is in the target at an unknown offset"
                )));
            };
            let count = flight.offsets.count();
            acknowledged = acknowledged.saturating_add(count.unsigned_abs());
            match &flight.offsets {
                Offsets::Mapped(runs) => {
                    for run in runs {
                        let range = Range {
                            source: run.first,
                            target: base,
                            count: run.count,
                        };
                        map.push(range)
                            .map_err(|error| unaccounted(error.to_string()))?;
                        base = base.saturating_add(run.count);
                    }
                }
                Offsets::Placed {
                    partition, last, ..
                } => {
                    let part = parts.entry(*partition).or_insert(Part {
                        first: base,
                        last: -1,
                        source: -1,
                    });
                    if base <= part.last || *last <= part.source {
                        return Err(unaccounted(format!(
                            "the batch from offset {first} is in the target before an earlier one"
                        )));
                    }
                    part.last = base.saturating_add(count - 1);
                    part.source = *last;
                }
            }
        }
        self.books
            .settle(&source.topic, source.partition, acknowledged)
            .map_err(|error| Failure::unaccounted(error.to_string()).about(source))?;
        let offset_map = if map.is_empty() {
            Vec::new()
        } else {
            map.encode(&target.topic, target.partition)
                .map_err(|error| Failure::unaccounted(format!("{source}: {error}")).about(source))?
        };
        let dropped = DropReason::ALL
            .iter()
            .map(|reason| (reason.name(), self.books.dropped(*reason)));
        let newest = parts.iter().max_by_key(|(_, part)| part.source);
        let offsets = newest.map(|(_, part)| (part.first, part.last));
        let number = newest.map_or(target.partition, |(number, _)| *number);
        let first_placed = (!parts.is_empty())
            .then(|| self.flights.keys().next().copied())
            .flatten();
        Ok(Account {
            source: source.clone(),
            target: TopicPartition::new(target.topic.clone(), number),
            fetched: self.books.fetched,
            acknowledged,
            bytes: self.bytes,
            dropped: dropped.filter(|(_, count)| *count > 0).collect(),
            changed: self.books.changed().collect(),
            copied_headers: self.books.copied_headers,
            first_source_offset: map
                .source_bounds()
                .map(|(first, _)| first)
                .or(first_placed)
                .unwrap_or(self.began),
            next_source_offset: self.next,
            timestamp: if acknowledged > 0 { self.timestamp } else { -1 },
            target_offsets: map.target_bounds().or(offsets),
            placed: parts
                .iter()
                .map(|(number, part)| (*number, part.first, part.last))
                .collect(),
            offset_map,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use eomirror_batch::{BatchWriter, Codec, Limits};
    use eomirror_core::loop_guard::LoopGuard;
    use eomirror_core::offset_map::{Range, decode};
    use eomirror_core::relay::{
        Accounting, Fetched, Outgoing, Relay, SourceRun, Target, TopicPolicy,
    };

    use super::Book;
    use crate::lane::FailureKind;
    use eomirror_kafka::TopicPartition;

    fn sent(count: u64) -> Accounting {
        let mut books = Accounting::default();
        (books.fetched, books.sent) = (count, count);
        books
    }

    fn run(first: i64, count: i64) -> SourceRun {
        SourceRun { first, count }
    }

    fn ends() -> (TopicPartition, TopicPartition) {
        (TopicPartition::new("s", 2), TopicPartition::new("t", 2))
    }

    #[test]
    fn acknowledgements_in_any_order_give_one_map() {
        let (source, target) = ends();
        let mut book = Book::new(10);
        book.sent(&[run(10, 5)], 100);
        book.sent(&[run(15, 2), run(20, 3)], 50);
        book.fetched(&sent(10), 24, 77);
        book.acknowledged(15, Some(105));
        book.acknowledged(10, Some(100));

        let account = book.settle(&source, &target).unwrap();

        let ranges = decode(&account.offset_map).unwrap().map;
        let expected = [(10, 100, 7), (20, 107, 3)].map(|(source, target, count)| Range {
            source,
            target,
            count,
        });
        assert_eq!(ranges.ranges(), expected);
        assert_eq!(
            (account.acknowledged, account.bytes, account.timestamp),
            (10, 150, 77)
        );
        assert_eq!(account.target_offsets, Some((100, 109)));
        assert_eq!(
            (account.first_source_offset, account.next_source_offset),
            (10, 24)
        );
    }

    #[test]
    fn a_speculative_account_settles_when_no_other_producer_writes() {
        let (source, target) = ends();
        let mut book = Book::new(10);
        book.sent(&[run(10, 5)], 100);
        book.sent(&[run(15, 2), run(20, 3)], 50);
        book.fetched(&sent(10), 24, 77);

        let speculative = book.settle_speculatively(&source, &target, 40).unwrap();

        book.acknowledged(10, Some(40));
        book.acknowledged(15, Some(45));
        assert_eq!(speculative, book.settle(&source, &target).unwrap());
    }

    /// EO-1: the map of a transaction is one record beside its data, and must fit.
    #[test]
    fn a_full_book_has_a_map_of_less_than_half_a_megabyte() {
        let (source, target) = ends();
        let mut book = Book::new(0);
        let mut records = 0;
        while !book.is_full() {
            // every third record is left, as after compaction
            let runs: Vec<SourceRun> = (0..1_000).map(|nth| run(3 * (records + nth), 1)).collect();
            book.sent(&runs, 1);
            book.acknowledged(3 * records, Some(records));
            records += 1_000;
        }
        book.fetched(&sent(records.unsigned_abs()), 3 * records, 1);
        let account = book.settle(&source, &target).unwrap();
        let map = decode(&account.offset_map).unwrap().map;
        assert_eq!(map.ranges().len(), 100_000);
        assert!(account.offset_map.len() < 512 * 1024);
    }

    /// Returns the batches of a source partition whose records are placed by key in three partitions.
    fn placed(first: i64, keys: &[&[u8]]) -> Vec<Outgoing> {
        let mut writer = BatchWriter::new(Codec::None);
        for key in keys {
            writer.add(5, Some(key), None, [].into_iter()).unwrap();
        }
        let mut bytes = writer.take().unwrap();
        bytes[..8].copy_from_slice(&first.to_be_bytes());
        let guard = LoopGuard::new("S", "T", None, false).unwrap();
        let policy = TopicPolicy::new("s", "t", guard, false, HashSet::new()).unwrap();
        let fetched = Fetched {
            records: &bytes,
            aborted: &[],
            offsets: first..i64::MAX,
        };
        let limits = Target::default().placed(3);
        let relayed = Relay::new(Limits::default()).relay(&policy, 2, &limits, &fetched);
        assert_eq!(relayed.stopped, None);
        relayed.batches
    }

    /// EO-1, EO-5: the position names the last record of each target partition, and where the last of all is.
    #[test]
    fn an_account_of_records_placed_by_key_names_each_of_their_partitions() {
        let (source, target) = ends();
        let mut book = Book::new(8);
        // murmur2: of 3 partitions, "b" goes to 2 and "a" to 1
        for (first, keys, bases) in [
            (10, [&b"b"[..], b"a", b"b"], [70, 30]),
            (20, [b"b", b"b", b"a"], [90, 35]),
        ] {
            let batches = placed(first, &keys);
            assert_eq!(batches.len(), 2);
            for batch in &batches {
                book.placed(batch);
            }
            for batch in batches.iter().rev() {
                let base = bases[usize::from(batch.partition() == 1)];
                book.acknowledged(batch.first_offset(), Some(base));
            }
        }
        book.fetched(&sent(6), 24, 5);

        let account = book.settle(&source, &target).unwrap();

        assert_eq!(account.placed, [(1, 30, 35), (2, 70, 91)]);
        assert_eq!(account.target, TopicPartition::new("t", 1));
        assert_eq!(account.target_offsets, Some((30, 35)));
        assert_eq!((account.acknowledged, account.timestamp), (6, 5));
        assert_eq!(
            (account.first_source_offset, account.next_source_offset),
            (10, 24)
        );
        assert!(account.offset_map.is_empty());
        let written: Vec<_> = account.written().collect();
        assert_eq!(
            written,
            [
                (TopicPartition::new("t", 1), 30, 35),
                (TopicPartition::new("t", 2), 70, 91)
            ]
        );
    }

    #[test]
    fn offsets_of_one_target_partition_that_go_back_are_not_accounted_for() {
        let (source, target) = ends();
        let mut book = Book::new(0);
        for (first, base) in [(10, 50), (20, 49)] {
            let batches = placed(first, &[b"b"]);
            book.placed(&batches[0]);
            book.acknowledged(first, Some(base));
        }
        book.fetched(&sent(2), 21, 1);
        let failure = book.settle(&source, &target).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Unaccounted);
    }

    #[test]
    fn a_batch_without_an_acknowledged_offset_is_not_accounted_for() {
        let (source, target) = ends();
        let mut book = Book::new(0);
        book.sent(&[run(0, 3)], 10);
        book.fetched(&sent(3), 3, 1);
        book.acknowledged(0, None);
        let failure = book.settle(&source, &target).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Unaccounted);
    }

    #[test]
    fn a_record_that_was_fetched_and_not_sent_is_not_accounted_for() {
        let (source, target) = ends();
        let mut book = Book::new(0);
        book.sent(&[run(0, 3)], 10);
        book.fetched(&sent(4), 4, 1);
        book.acknowledged(0, Some(0));
        let failure = book.settle(&source, &target).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Unaccounted);
        assert!(failure.message.contains("fetched 4"), "{failure}");
    }

    #[test]
    fn an_account_of_dropped_records_has_no_map() {
        let (source, target) = ends();
        let mut book = Book::new(7);
        book.fetched(&Accounting::default(), 9, -1);
        let account = book.settle(&source, &target).unwrap();
        assert!(account.offset_map.is_empty());
        assert_eq!(
            (account.first_source_offset, account.target_offsets),
            (7, None)
        );
    }
}

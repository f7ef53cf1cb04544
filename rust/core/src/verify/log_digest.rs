//! Reads one side of a comparison: turns the bytes of Fetch responses into digests of the relevant records.
//!
//! Counted but excluded: records of aborted transactions, control batches, records outside of the range, and records
//! that the link drops (by its loop guard, or as dead letters), or that other links wrote into the same copy. A dead
//! letter excludes only the record with its digest. A record that the link's transform changes has the digest of what it
//! becomes.
//! Timestamps can be excluded from the digest: a copy cannot keep them if the target's broker sets them
//! (`message.timestamp.type=LogAppendTime`).

use std::collections::HashMap;
use std::ops::Range;

use crate::digest::Digest;
use crate::error::place;
use crate::header::{self, Reading};
use crate::loop_guard::{self, LoopGuard};
use crate::origin;
use crate::transform::{Edited, Fate, Parts, TopicTransform};
use crate::types::{HeaderRef, RecordRef, Written};
use crate::verify::compare::Seen;
use eomirror_batch::{
    AbortedFilter, AbortedTransaction, Batches, Continuity, Limits, Memory, Records, Verdict,
};

/// Records of a partition for which a link is responsible.
#[derive(Debug, Clone)]
pub enum Part {
    /// All records.
    All,
    /// On the source: records that the guard passes.
    Forwarded(LoopGuard),
    /// On the target: records whose previous hop was this cluster. The others were written there.
    From {
        /// Id of the source cluster.
        source: String,
        /// Id of the target cluster.
        target: String,
    },
}

/// Counts of a partition's records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Relevant records.
    pub records: u64,
    /// Bytes of record batches as fetched.
    pub bytes: u64,
    /// Records of aborted transactions.
    pub aborted: u64,
    /// Control batches.
    pub control: u64,
    /// Records that this link drops or that others wrote (see [`Part`]), and dead letters.
    pub left_out: u64,
}

/// A record of a side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Offset, and digest of everything that a copy keeps.
    pub seen: Seen,
    /// Digest of the key.
    pub key: u64,
    /// True if the value is null.
    pub tombstone: bool,
    /// True if the link is responsible for the record. Others are returned too, because they matter for compaction.
    pub ours: bool,
}

/// Reads a range of one partition, response after response.
pub struct LogDigest {
    topic: String,
    range: Range<i64>,
    next: i64,
    part: Part,
    timestamps: bool,
    dead_letters: HashMap<i64, u64>,
    others: Vec<Range<i64>>,
    own: Vec<Range<i64>>,
    origins: bool,
    transform: Option<TopicTransform>,
    counts: Counts,
    holes: Vec<Range<i64>>,
    compacted: bool,
    memory: Memory,
    scratch: Vec<u8>,
}

/// Maximum number of holes kept per log.
const MOST_HOLES: usize = 100;

impl LogDigest {
    /// Returns a reader of the records of `topic` with offsets in `range`.
    #[must_use]
    pub fn new(topic: &str, range: Range<i64>, part: Part, timestamps: bool) -> Self {
        Self {
            topic: topic.to_owned(),
            next: range.start,
            range,
            part,
            timestamps,
            dead_letters: HashMap::new(),
            others: Vec::new(),
            own: Vec::new(),
            origins: true,
            transform: None,
            counts: Counts::default(),
            holes: Vec::new(),
            compacted: false,
            memory: Memory::default(),
            scratch: Vec::new(),
        }
    }

    /// Excludes the records at these offsets, if the digest of each matches, timestamp included.
    pub fn skip_dead_letters(&mut self, dead_letters: impl IntoIterator<Item = (i64, u64)>) {
        self.dead_letters.extend(dead_letters);
    }

    /// Excludes the records in these ranges, which other links wrote; replaces the ranges known before.
    pub fn skip_others(&mut self, ranges: Vec<Range<i64>>) {
        self.others = merged(ranges);
    }

    /// Includes the records in these ranges, which the link wrote, also if no header says so: copies are older than the
    /// header if a reverse link was added later. Replaces the ranges known before.
    pub fn keep_own(&mut self, ranges: Vec<Range<i64>>) {
        self.own = merged(ranges);
    }

    /// Leaves the header [`crate::origin`] out of the digests, because the link replaces it.
    pub fn skip_origins(&mut self) {
        self.origins = false;
    }

    /// Reads records as the rules of the link's transform leave them.
    pub fn transform_by(&mut self, transform: Option<TopicTransform>) {
        self.transform = transform;
    }

    /// Returns the next fetch offset. It never exceeds the end, so after [`Self::extend`] the records past the old end
    /// are found even within the last batch.
    #[must_use]
    pub fn next(&self) -> i64 {
        self.next
    }

    /// Returns true if the range has been read to its end.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.next >= self.range.end
    }

    /// Returns the counts.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the missing offsets of the log, at most a hundred ranges. Empty if a batch shows compaction, which makes
    /// holes.
    #[must_use]
    pub fn holes(&self) -> &[Range<i64>] {
        if self.compacted { &[] } else { &self.holes }
    }

    /// Moves the end of the range forward.
    pub fn extend(&mut self, end: i64) {
        self.range.end = self.range.end.max(end);
    }

    /// Restarts at the first offset of the range and discards the counts.
    pub fn rewind(&mut self) {
        self.next = self.range.start;
        self.counts = Counts::default();
        self.holes.clear();
    }

    /// Moves the position to `offset`, because nothing lies between.
    pub fn skip_to(&mut self, offset: i64) {
        self.next = self.next.max(offset.min(self.range.end));
    }

    /// Takes the batches of one response and returns the leader epoch of the last one, -1 for none.
    pub fn read(
        &mut self,
        records: &[u8],
        aborted: Vec<AbortedTransaction>,
        mut each: impl FnMut(Entry),
    ) -> Result<i32, String> {
        let mut filter = AbortedFilter::new(aborted);
        let mut epoch = -1;
        self.counts.bytes += records.len() as u64;
        let mut continuity = Continuity::new(self.next);
        for batch in Batches::new(records) {
            if self.is_done() {
                break;
            }
            let batch = batch.map_err(|error| error.to_string())?;
            batch.check_crc().map_err(|error| error.to_string())?;
            let judged = filter.judge(&batch).map_err(|error| error.to_string())?;
            if let Some(hole) = continuity.look(&batch) {
                let end = hole.end.min(self.range.end);
                if hole.start < end && self.holes.len() < MOST_HOLES {
                    self.holes.push(hole.start..end);
                }
            }
            self.compacted |= continuity.is_compacted();
            match judged.verdict {
                Verdict::Control(_) => self.counts.control += 1,
                Verdict::Aborted => {
                    self.counts.aborted += u64::try_from(batch.record_count()).unwrap_or(0);
                }
                Verdict::Data => {
                    let mut memory = std::mem::take(&mut self.memory);
                    let mut headers: Vec<HeaderRef<'_>> = Vec::new();
                    let records = Records::of(&batch, &mut memory, Limits::default());
                    for record in records.map_err(|error| error.to_string())? {
                        let record = record.map_err(|error| error.to_string())?;
                        headers.clear();
                        headers.extend(record.headers.clone());
                        let record = RecordRef {
                            topic: "",
                            partition: 0,
                            offset: record.offset,
                            leader_epoch: batch.leader_epoch(),
                            timestamp: record.timestamp,
                            key: record.key,
                            value: record.value,
                            headers: &headers,
                            written: Written::By(batch.producer_id()),
                        };
                        if let Some(entry) = self.take(&record)? {
                            each(entry);
                        }
                    }
                    self.memory = memory;
                }
            }
            epoch = batch.leader_epoch();
            self.skip_to(judged.next_offset);
        }
        Ok(epoch)
    }

    /// Takes one record; `None` if it is outside of the range.
    pub fn take(&mut self, record: &RecordRef<'_>) -> Result<Option<Entry>, String> {
        self.take_with(record, |entry, _| entry)
    }

    /// Takes one record and calls `each` with it as it is compared; `None` if it is outside of the range.
    pub fn take_with<T>(
        &mut self,
        record: &RecordRef<'_>,
        each: impl FnOnce(Entry, &RecordRef<'_>) -> T,
    ) -> Result<Option<T>, String> {
        if record.offset < self.next.max(self.range.start) || record.offset >= self.range.end {
            return Ok(None);
        }
        let edited = match &self.transform {
            None => Some(Edited::default()),
            Some(transform) => {
                let at = || place(&self.topic, record.partition, record.offset);
                match transform.apply(Parts::of(record), at) {
                    Ok(Fate::Keep(edited)) => Some(edited),
                    Ok(Fate::Drop(_)) => None,
                    Err(error) => return Err(error.to_string()),
                }
            }
        };
        let ours = edited.is_some()
            && !holds(&self.others, record.offset)
            && (holds(&self.own, record.offset) || self.is_ours(record)?)
            && !self.is_letter(record);
        if ours {
            self.counts.records += 1;
        } else {
            self.counts.left_out += 1;
        }
        let edited = edited.unwrap_or_default();
        let changed = edited.header_refs();
        let headers: Vec<HeaderRef<'_>>;
        let mut compared = RecordRef {
            timestamp: if self.timestamps { record.timestamp } else { 0 },
            key: edited.key(record.key),
            value: edited.value(record.value),
            headers: changed.as_deref().unwrap_or(record.headers),
            ..*record
        };
        if !self.origins {
            let kept = compared.headers.iter().copied();
            headers = kept
                .filter(|header| header.key != origin::NAME.as_bytes())
                .collect();
            compared.headers = &headers;
        }
        let mut digest = Digest::default();
        digest.add(&compared, &mut self.scratch);
        let entry = Entry {
            seen: Seen {
                offset: record.offset,
                digest: digest.value(),
            },
            key: key_digest(compared.key),
            tombstone: record.value.is_none(),
            ours,
        };
        Ok(Some(each(entry, &compared)))
    }

    fn is_letter(&mut self, record: &RecordRef<'_>) -> bool {
        let Some(dead_letter) = self.dead_letters.get(&record.offset) else {
            return false;
        };
        let mut digest = Digest::default();
        digest.add(record, &mut self.scratch);
        digest.value() == *dead_letter
    }

    fn is_ours(&self, record: &RecordRef<'_>) -> Result<bool, String> {
        match &self.part {
            Part::All => Ok(true),
            Part::Forwarded(guard) => {
                let record = RecordRef {
                    topic: &self.topic,
                    ..*record
                };
                let verdict = guard.judge(&record).map_err(|error| error.to_string())?;
                Ok(!matches!(verdict, loop_guard::Verdict::Drop(_)))
            }
            Part::From { source, target } => {
                let found = record
                    .headers
                    .iter()
                    .rev()
                    .find(|header| header.key == header::NAME.as_bytes())
                    .and_then(|header| header.value);
                let reading =
                    found.map(|bytes| header::read(bytes, &self.topic, record.key, record.value));
                Ok(matches!(reading, Some(Reading::Ours(provenance, mark))
                    if provenance.hops.last() == Some(source)
                        && !mark.is_some_and(|mark| mark.is_of_another(target, record))))
            }
        }
    }
}

/// Returns the ranges in ascending order, those that touch as one.
fn merged(mut ranges: Vec<Range<i64>>) -> Vec<Range<i64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut found: Vec<Range<i64>> = Vec::new();
    for range in ranges {
        match found.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => found.push(range),
        }
    }
    found
}

/// Returns true if one of the merged ranges contains the offset.
fn holds(ranges: &[Range<i64>], offset: i64) -> bool {
    let after = ranges.partition_point(|range| range.start <= offset);
    after
        .checked_sub(1)
        .is_some_and(|index| ranges[index].contains(&offset))
}

/// Returns the digest of a key. Null and empty differ.
fn key_digest(key: Option<&[u8]>) -> u64 {
    key.map_or(0, |key| xxhash_rust::xxh3::xxh3_64_with_seed(key, 1))
}

#[cfg(test)]
mod tests {
    use super::{Counts, LogDigest, Part};
    use crate::header::{Mark, NAME, Provenance, Writer};
    use crate::loop_guard::LoopGuard;
    use crate::types::{HeaderRef, RecordRef, Written};

    fn record<'a>(offset: i64, timestamp: i64, headers: &'a [HeaderRef<'a>]) -> RecordRef<'a> {
        RecordRef {
            topic: "",
            partition: 0,
            offset,
            leader_epoch: 0,
            timestamp,
            key: Some(b"k"),
            value: Some(b"v"),
            headers,
            written: Written::By(7),
        }
    }

    /// Returns for each offset whether its record belongs to the part; the offset is its timestamp too.
    fn ours(content: &mut LogDigest, offsets: std::ops::Range<i64>) -> Vec<bool> {
        offsets
            .map(|at| content.take(&record(at, at, &[])).unwrap().unwrap().ours)
            .collect()
    }

    #[test]
    fn only_the_range_counts() {
        let mut content = LogDigest::new("t", 5..7, Part::All, true);
        for offset in 0..10 {
            let taken = content.take(&record(offset, 1, &[])).unwrap();
            assert_eq!(taken.is_some(), (5..7).contains(&offset));
        }
        assert_eq!(content.counts().records, 2);
    }

    #[test]
    fn what_lies_behind_the_end_is_there_when_the_end_moves() {
        let mut content = LogDigest::new("t", 0..5, Part::All, true);
        for offset in 0..10 {
            content.take(&record(offset, 1, &[])).unwrap();
        }
        content.skip_to(10);
        assert!(content.is_done());
        content.extend(10);
        assert_eq!(content.next(), 5);
        for offset in 0..10 {
            content.take(&record(offset, 1, &[])).unwrap();
        }
        assert_eq!(content.counts().records, 10);
    }

    #[test]
    fn timestamps_can_be_left_out() {
        let digest = |timestamps, time| {
            let mut content = LogDigest::new("t", 0..9, Part::All, timestamps);
            content.take(&record(0, time, &[])).unwrap().unwrap().seen
        };
        assert_eq!(digest(false, 1), digest(false, 2));
        assert_ne!(digest(true, 1), digest(true, 2));
    }

    #[test]
    fn a_dead_letter_excuses_only_the_record_with_its_digest() {
        let digest = |offset| {
            let mut content = LogDigest::new("t", 0..9, Part::All, true);
            let entry = content.take(&record(offset, offset, &[])).unwrap().unwrap();
            entry.seen.digest
        };
        for timestamps in [true, false] {
            let mut content = LogDigest::new("t", 0..9, Part::All, timestamps);
            content.skip_dead_letters([(3, digest(3)), (4, digest(5))]);
            let ours = ours(&mut content, 0..9);
            assert_eq!(ours.iter().filter(|ours| !**ours).count(), 1);
            assert!(!ours[3]);
            assert_eq!(content.counts().left_out, 1);
        }
    }

    #[test]
    fn records_of_other_links_are_left_out() {
        let mut content = LogDigest::new("t", 0..20, Part::All, true);
        // the first two overlap, and the third touches them
        content.skip_others(vec![10..12, 2..5, 4..7, 7..8]);
        let ours = ours(&mut content, 0..14);
        let numbers: Vec<_> = (0..14).filter(|at| ours[*at]).collect();
        assert_eq!(numbers, [0, 1, 8, 9, 12, 13]);
        assert_eq!(content.counts().left_out, 8);
        content.skip_others(Vec::new());
        assert!(content.take(&record(14, 1, &[])).unwrap().unwrap().ours);
    }

    #[test]
    fn the_header_with_the_place_on_the_source_is_left_out_on_request() {
        let place = HeaderRef {
            key: crate::origin::NAME.as_bytes(),
            value: Some(b"a/t/0/1"),
        };
        let other = HeaderRef {
            key: b"x",
            value: None,
        };
        let digest = |skip: bool, headers: &[HeaderRef<'_>]| {
            let mut content = LogDigest::new("t", 0..9, Part::All, true);
            if skip {
                content.skip_origins();
            }
            content.take(&record(1, 1, headers)).unwrap().unwrap().seen
        };
        assert_eq!(digest(true, &[other, place]), digest(true, &[other]));
        assert_eq!(digest(true, &[other]), digest(false, &[other]));
        assert_ne!(digest(false, &[other, place]), digest(false, &[other]));
    }

    #[test]
    fn copies_of_the_link_count_with_and_without_a_header() {
        let part = || Part::From {
            source: "east".to_owned(),
            target: "west".to_owned(),
        };
        let mut content = LogDigest::new("t", 0..20, part(), true);
        content.keep_own(vec![4..6, 1..3]);
        content.skip_others(std::iter::once(2..3).collect());
        let ours = ours(&mut content, 0..8);
        let numbers: Vec<_> = (0..8).filter(|at| ours[*at]).collect();
        assert_eq!(numbers, [1, 4, 5]);
        assert_eq!(content.counts().left_out, 5);
    }

    #[test]
    fn a_link_answers_for_what_it_forwards_only() {
        let provenance = |hops: &[&str], mark: Option<&Mark>| {
            let hops: Vec<String> = hops.iter().map(|hop| (*hop).to_owned()).collect();
            Provenance {
                origin: hops[0].clone(),
                hops,
            }
            .encode("t", Some(b"k"), Some(b"v"), mark)
        };
        let guard = LoopGuard::new("x", "y", None, true).unwrap();
        let ours = |part: Part, bytes: Option<&[u8]>| {
            let headers: Vec<_> = bytes
                .map(|bytes| HeaderRef {
                    key: NAME.as_bytes(),
                    value: Some(bytes),
                })
                .into_iter()
                .collect();
            let mut content = LogDigest::new("t", 0..9, part, true);
            let entry = content.take(&record(0, 1, &headers)).unwrap().unwrap();
            let (records, left_out) = (u64::from(entry.ours), u64::from(!entry.ours));
            let expected = Counts {
                records,
                left_out,
                ..Counts::default()
            };
            assert_eq!(content.counts(), expected);
            entry.ours
        };
        let forwarded = || Part::Forwarded(guard.clone());
        let from_x = || Part::From {
            source: "x".into(),
            target: "y".into(),
        };
        let mark = |cluster: &str, id: i64| Writer::new(cluster, id).unwrap().mark(0, 1);
        assert!(ours(forwarded(), None));
        assert!(!ours(forwarded(), Some(&provenance(&["y"], None))));
        assert!(ours(from_x(), Some(&provenance(&["x"], None))));
        assert!(!ours(from_x(), Some(&provenance(&["y"], None))));
        assert!(!ours(from_x(), None));
        // producer 7 wrote the records
        for (id, mirrored) in [(7, true), (8, false)] {
            let (there, here) = (mark("x", id), mark("y", id));
            let (there, here) = (
                provenance(&["y"], Some(&there)),
                provenance(&["x"], Some(&here)),
            );
            assert_eq!(ours(forwarded(), Some(&there)), !mirrored);
            assert_eq!(ours(from_x(), Some(&here)), mirrored);
        }
    }
}

//! One side of a comparison, and the judge of both.

use eomirror_core::verify::compacted::LastByKey;
use eomirror_core::verify::compare::{Comparison, Side};
use eomirror_core::verify::log_digest::{Entry, LogDigest, Part};
use eomirror_kafka::{
    Assignment, Clock, FetchedRecords, Fetcher, Outcome, SystemClock, TopicPartition,
};

/// Topic, partition, first offset, end of the compared range, end of the read range.
pub(super) type Range = (String, i32, i64, i64, i64);

/// One side of a comparison.
pub(super) struct Half {
    pub(super) partition: TopicPartition,
    pub(super) content: LogDigest,
    /// Records from here on are read to excuse compaction, and not compared.
    pub(super) end: i64,
    parked: Option<FetchedRecords>,
}

/// Kind of comparison.
pub(super) enum Judge {
    InOrder(Comparison),
    ByKey(LastByKey),
}

/// Reason that a step failed.
pub(super) enum Trouble {
    Plane(eomirror_kafka::Error),
    Topic { topic: String, message: String },
}

impl Half {
    pub(super) fn new(
        (topic, partition, start, end, tail): Range,
        part: Part,
        timestamps: bool,
    ) -> Self {
        Self {
            content: LogDigest::new(&topic, start..tail.max(end), part, timestamps),
            partition: TopicPartition::new(topic, partition),
            end,
            parked: None,
        }
    }

    pub(super) fn assign(&self, fetcher: &mut Fetcher) {
        let TopicPartition { topic, partition } = &self.partition;
        let next = self.content.next();
        // the fetcher keeps fetching a partition from its current offset; but if it has handed a response to an earlier
        // comparison, it would wait for that one to take it
        fetcher.assign(&[]);
        fetcher.assign(&[Assignment::new(topic.clone(), *partition, next)]);
    }

    /// Reads the range again.
    pub(super) fn rewind(&mut self) {
        self.content.rewind();
        self.parked = None;
    }

    fn trouble(&self, message: impl std::fmt::Display) -> Trouble {
        Trouble::Topic {
            topic: self.partition.topic.clone(),
            message: format!("{}@{}: {message}", self.partition, self.content.next()),
        }
    }

    /// Takes fetched data without waiting.
    pub(super) fn receive(&mut self, fetcher: &mut Fetcher) -> Result<(), Trouble> {
        let now = SystemClock.now();
        for fetched in fetcher.poll(now).map_err(Trouble::Plane)? {
            if fetched.partition != self.partition || fetched.offset != self.content.next() {
                continue;
            }
            match fetched.outcome {
                Outcome::Records(records) => self.parked = Some(records),
                Outcome::Stopped(stop) => return Err(self.trouble(stop)),
            }
        }
        Ok(())
    }

    /// Digests parked data; false if there was none.
    pub(super) fn digest(
        &mut self,
        side: Side,
        judge: &mut Judge,
        fetcher: &mut Fetcher,
    ) -> Result<bool, Trouble> {
        if !judge.wants(side) {
            return Ok(false);
        }
        let Some(answer) = self.parked.take() else {
            return Ok(false);
        };
        let aborted = answer.aborted.unwrap_or_default();
        let end = self.end;
        let read = self.content.read(&answer.records, aborted, |entry| {
            judge.add(side, &entry, end);
        });
        let epoch = read.map_err(|reason| self.trouble(reason))?;
        if !self.content.is_done() {
            fetcher.advance(&self.partition, self.content.next(), epoch);
            // the broker prepares the next response while the other side is processed
            fetcher.step().map_err(Trouble::Plane)?;
        }
        Ok(true)
    }
}

impl Judge {
    pub(super) fn wants(&self, side: Side) -> bool {
        match self {
            Self::InOrder(comparison) => comparison.wants(side),
            Self::ByKey(state) => !state.is_full(),
        }
    }

    pub(super) fn add(&mut self, side: Side, entry: &Entry, end: i64) {
        match self {
            Self::InOrder(comparison) if entry.ours => comparison.add(side, [entry.seen]),
            Self::InOrder(_) => {}
            Self::ByKey(state) => state.add(side, entry, entry.seen.offset < end),
        }
    }
}

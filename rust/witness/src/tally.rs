//! Counts of a witness: plain data behind a mutex, independent of librdkafka.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use eomirror_core::Acks;
use eomirror_core::types::{AckRun, AckedPartition};

/// Counts of one API key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    /// Requests written to a socket; a retry counts again.
    pub sent: u64,
    /// Response callbacks. librdkafka 2.16 may call back twice for one response, so this is an indication, not an exact
    /// number.
    pub answered: u64,
    /// Response callbacks with an error of the connection or of librdkafka, such as a timeout.
    pub errors: u64,
}

/// Acknowledgements since they were last taken.
#[derive(Default)]
pub(crate) struct AckTally {
    acks: Acks,
    index: HashMap<Vec<u8>, HashMap<i32, usize>>,
    last: usize,
}

impl AckTally {
    /// Counts a delivered message. An offset below 0 is an acknowledgement without an offset: librdkafka returns none
    /// if the broker answered a retry with `DUPLICATE_SEQUENCE_NUMBER`.
    pub(crate) fn delivered(&mut self, topic: &[u8], partition: i32, offset: i64) {
        if offset < 0 {
            self.failed();
            return;
        }
        let place = self.place(topic, partition);
        let runs = &mut self.acks.partitions[place].runs;
        match runs.last_mut() {
            Some(run) if run.first + run.count == offset => run.count += 1,
            _ => runs.push(AckRun {
                first: offset,
                count: 1,
            }),
        }
    }

    /// Counts a message that was not delivered.
    pub(crate) fn failed(&mut self) {
        self.acks.failed += 1;
    }

    /// Returns the counts and resets them.
    pub(crate) fn take(&mut self) -> Acks {
        self.index.clear();
        self.last = 0;
        std::mem::take(&mut self.acks)
    }

    /// Messages are acknowledged batch by batch, so the partition is mostly that of the previous message.
    fn place(&mut self, topic: &[u8], partition: i32) -> usize {
        if let Some(last) = self.acks.partitions.get(self.last) {
            if last.partition == partition && last.topic.as_bytes() == topic {
                return self.last;
            }
        }
        let known = self
            .index
            .get(topic)
            .and_then(|partitions| partitions.get(&partition));
        self.last = if let Some(place) = known {
            *place
        } else {
            let place = self.acks.partitions.len();
            self.acks.partitions.push(AckedPartition {
                topic: String::from_utf8_lossy(topic).into_owned(),
                partition,
                runs: Vec::new(),
            });
            self.index
                .entry(topic.to_vec())
                .or_default()
                .insert(partition, place);
            place
        };
        self.last
    }
}

/// Locks a mutex, even a poisoned one. After a caught panic the counts are at worst too low, which the accounting of
/// rule 7 detects, so they need not be discarded.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::AckTally;

    /// Topic, partition, and runs of (first offset, count).
    type Taken = (String, i32, Vec<(i64, i64)>);

    fn taken(tally: &mut AckTally) -> (u64, Vec<Taken>) {
        let acks = tally.take();
        let partitions = acks.partitions.into_iter().map(|acked| {
            let runs = acked
                .runs
                .iter()
                .map(|run| (run.first, run.count))
                .collect();
            (acked.topic, acked.partition, runs)
        });
        (acks.failed, partitions.collect())
    }

    #[test]
    fn offsets_become_runs_per_partition_in_delivery_order() {
        let mut tally = AckTally::default();
        for (topic, partition, offset) in [
            ("a", 0, 5),
            ("a", 0, 6),
            ("b", 0, 1),
            ("a", 1, 0),
            ("a", 0, 7),
            ("a", 0, 9),
            ("b", 0, 2),
        ] {
            tally.delivered(topic.as_bytes(), partition, offset);
        }
        assert_eq!(
            taken(&mut tally),
            (
                0,
                vec![
                    ("a".into(), 0, vec![(5, 3), (9, 1)]),
                    ("b".into(), 0, vec![(1, 2)]),
                    ("a".into(), 1, vec![(0, 1)]),
                ]
            )
        );
        assert_eq!(taken(&mut tally), (0, vec![]), "taking starts anew");
        tally.delivered(b"b", 0, 3);
        assert_eq!(taken(&mut tally), (0, vec![("b".into(), 0, vec![(3, 1)])]));
    }

    #[test]
    fn an_acknowledgement_without_an_offset_is_a_failure() {
        let mut tally = AckTally::default();
        tally.delivered(b"a", 0, -1001);
        tally.failed();
        assert_eq!(taken(&mut tally), (2, vec![]));
    }
}

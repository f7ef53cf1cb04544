//! Answers that are held: all partitions of one answer share its memory, which goes when the last of them is let go.

use std::collections::BTreeMap;

use super::tracked::Phase;

#[derive(Debug)]
struct Holding {
    broker: i32,
    bytes: u64,
    partitions: usize,
}

/// Answers of which partitions are held, by the ticket of the request.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    answers: BTreeMap<u64, Holding>,
}

impl Holdings {
    /// One more partition of an answer of so many bytes is held.
    pub(super) fn hold(&mut self, ticket: u64, broker: i32, bytes: u64) {
        let holding = self.answers.entry(ticket).or_insert(Holding {
            broker,
            bytes,
            partitions: 0,
        });
        holding.partitions += 1;
    }

    /// A partition leaves this phase: it is not held any more, if it was.
    pub(super) fn release(&mut self, phase: Phase) {
        let Phase::Held { ticket } = phase else {
            return;
        };
        if let Some(holding) = self.answers.get_mut(&ticket) {
            holding.partitions -= 1;
            if holding.partitions == 0 {
                self.answers.remove(&ticket);
            }
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.answers.values().map(|holding| holding.bytes).sum()
    }

    pub(super) fn bytes_of(&self, broker: i32) -> u64 {
        let of_broker = self
            .answers
            .values()
            .filter(|holding| holding.broker == broker);
        of_broker.map(|holding| holding.bytes).sum()
    }
}

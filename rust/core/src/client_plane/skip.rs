//! Skips poison records, which the target rejects for their content: counts them as dropped and returns their digests.
//!
//! The caller finds these records by sending smaller and smaller ranges. They are entered here in fetch order, among
//! the kept records of their partition ([`crate::client_plane::plan::plan`]).

use crate::client_plane::ledger::Ledger;
use crate::client_plane::plan::Policy;
use crate::digest::Digest;
use crate::error::Error;
use crate::types::{DropReason, RecordRef};

/// Enters records as [`DropReason::DeadLetter`] and returns the digest of each record in hexadecimal.
///
/// On an error the ledger is unchanged.
pub fn skip(
    policy: &Policy,
    records: &[RecordRef<'_>],
    ledger: &mut Ledger,
) -> Result<Vec<String>, Error> {
    let mut routed = Vec::with_capacity(records.len());
    for (index, record) in records.iter().enumerate() {
        let route = policy
            .routes()
            .find(record.topic)
            .ok_or_else(|| Error::NoRoute { at: record.place() })?;
        let before = records[..index]
            .iter()
            .rev()
            .find(|before| before.topic == record.topic && before.partition == record.partition)
            .map(|before| before.offset)
            .or_else(|| ledger.last_offset(route, record.partition));
        if let Some(last) = before.filter(|last| record.offset <= *last) {
            return Err(Error::OffsetWentBack {
                at: record.place(),
                last,
            });
        }
        routed.push(route);
    }
    let mut scratch = Vec::new();
    let mut digests = Vec::with_capacity(records.len());
    for (record, route) in records.iter().zip(routed) {
        ledger.drop(route, record, DropReason::DeadLetter);
        let mut digest = Digest::default();
        digest.add(record, &mut scratch);
        digests.push(digest.hex());
    }
    Ok(digests)
}

#[cfg(test)]
mod tests {
    use super::skip;
    use crate::client_plane::ledger::Ledger;
    use crate::client_plane::plan::{Policy, plan};
    use crate::client_plane::route::Routes;
    use crate::error::Error;
    use crate::loop_guard::LoopGuard;
    use crate::types::{AckRun, AckedPartition, Acks, RecordRef, Written};

    fn policy() -> Policy {
        let routes = Routes::new([("orders".to_owned(), "east.orders".to_owned())]).unwrap();
        let guard = LoopGuard::new("S", "T", None, false).unwrap();
        Policy::new(routes, guard, false)
    }

    fn record(offset: i64) -> RecordRef<'static> {
        RecordRef {
            topic: "orders",
            partition: 0,
            offset,
            leader_epoch: 3,
            timestamp: 1_000,
            key: Some(b"k"),
            value: Some(b"v"),
            headers: &[],
            written: Written::Unknown,
        }
    }

    #[test]
    fn a_skipped_record_is_counted_between_its_neighbours() {
        let (policy, mut ledger) = (policy(), Ledger::default());
        plan(&policy, &[record(5), record(6)], &mut ledger).unwrap();
        let digests = skip(&policy, &[record(7)], &mut ledger).unwrap();
        plan(&policy, &[record(8)], &mut ledger).unwrap();
        let acks = Acks {
            partitions: vec![AckedPartition {
                topic: "east.orders".to_owned(),
                partition: 0,
                runs: vec![AckRun {
                    first: 50,
                    count: 3,
                }],
            }],
            failed: 0,
        };
        let accounts = ledger.settle(policy.routes(), &acks).unwrap();
        assert_eq!(digests[0].len(), 16);
        assert_eq!(accounts[0].fetched, 4);
        assert_eq!(accounts[0].acked, 3);
        assert_eq!(accounts[0].dropped.get("dead-letter"), Some(&1));
        assert_eq!(accounts[0].last_source_offset, 8);
    }

    #[test]
    fn an_offset_that_goes_back_leaves_the_books_alone() {
        let (policy, mut ledger) = (policy(), Ledger::default());
        let twice = skip(&policy, &[record(7), record(7)], &mut ledger);
        assert!(matches!(twice, Err(Error::OffsetWentBack { last: 7, .. })));
        assert!(ledger.is_empty());
    }

    #[test]
    fn a_topic_without_a_route_is_refused() {
        let (policy, mut ledger) = (policy(), Ledger::default());
        let stranger = RecordRef {
            topic: "payments",
            ..record(1)
        };
        assert!(matches!(
            skip(&policy, &[stranger], &mut ledger),
            Err(Error::NoRoute { .. })
        ));
    }
}

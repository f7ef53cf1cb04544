//! Selects the records that a link forwards when topic names are equal on several clusters.
//!
//! Two lines of defence. *Origin*: a link forwards only origins of its own tree, because in a mesh a record would
//! otherwise reach a cluster both directly and through a third one. *Hop*: a record never returns to a cluster that it
//! has passed; this holds even if the trees of two processes disagree.
//!
//! A record without a header of its own is local: it originates in the cluster that it was read from. A header is a
//! record's own if it was written for this topic, key and value. Its mark, if it has one, must also name the producer
//! of the record's batch ([`crate::header::Mark`]). Records that an application writes are local, whatever headers it
//! copied.

use std::collections::HashSet;

use crate::error::Error;
use crate::header::{self, MAX_HOPS, Provenance, Reading, check_cluster_id};
use crate::types::{DropReason, RecordRef};

/// A link's cluster ids and forwarded origins.
#[derive(Debug, Clone)]
pub struct LoopGuard {
    source: String,
    target: String,
    origins: Option<HashSet<String>>,
    enforced: bool,
}

/// Decision about one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Forward. A provenance header, if one is written, has this content.
    Keep(Provenance),
    /// Forward as a local record: the provenance header that it carries was written for another record.
    Copied(Provenance),
    /// Drop and count.
    Drop(DropReason),
}

/// Origin of a record, by its provenance header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A link copied it from another cluster.
    Copied(Provenance),
    /// An application wrote it, with the header of another record.
    Emitted,
    /// An application wrote it, without such a header.
    Local,
}

/// Returns the origin of a record that was found on `cluster`. If it has several provenance headers the last one counts,
/// as in `Headers.lastHeader` of Kafka's Java client.
pub fn provenance(record: &RecordRef<'_>, cluster: &str) -> Result<Origin, Error> {
    let found = record
        .headers
        .iter()
        .rev()
        .find(|header| header.key == header::NAME.as_bytes())
        .and_then(|header| header.value);
    let Some(bytes) = found else {
        return Ok(Origin::Local);
    };
    match header::read(bytes, record.topic, record.key, record.value) {
        Reading::Ours(_, Some(mark)) if mark.is_of_another(cluster, record) => Ok(Origin::Emitted),
        Reading::Ours(provenance, _) => Ok(Origin::Copied(provenance)),
        Reading::Foreign => Ok(Origin::Emitted),
        Reading::UnknownVersion(version) => Err(Error::UnknownHeaderVersion {
            at: record.place(),
            version,
            known: header::VERSION,
        }),
    }
}

impl LoopGuard {
    /// Returns a guard for the link from cluster `source` to cluster `target`.
    ///
    /// `origins` are the cluster ids that may be forwarded, `None` for any. A guard that is not `enforced` never drops:
    /// it only extends provenance.
    pub fn new(
        source: &str,
        target: &str,
        origins: Option<HashSet<String>>,
        enforced: bool,
    ) -> Result<Self, Error> {
        check_cluster_id("source cluster id", source)?;
        check_cluster_id("target cluster id", target)?;
        for origin in origins.iter().flatten() {
            check_cluster_id("origin cluster id", origin)?;
        }
        Ok(Self {
            source: source.to_owned(),
            target: target.to_owned(),
            origins,
            enforced,
        })
    }

    /// Returns the id of the target cluster.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Returns true if records may be dropped.
    #[must_use]
    pub fn enforced(&self) -> bool {
        self.enforced
    }

    /// Decides about `record`.
    pub fn judge(&self, record: &RecordRef<'_>) -> Result<Verdict, Error> {
        let (own, found) = match provenance(record, &self.source)? {
            Origin::Copied(provenance) => (Some(provenance), true),
            Origin::Emitted => (None, true),
            Origin::Local => (None, false),
        };
        let copied = own.is_none() && found;
        let mut provenance = own.unwrap_or_else(|| Provenance {
            origin: self.source.clone(),
            hops: Vec::new(),
        });
        if self.enforced {
            if provenance.origin == self.target || provenance.hops.contains(&self.target) {
                return Ok(Verdict::Drop(DropReason::Hop));
            }
            if let Some(origins) = &self.origins {
                if !origins.contains(&provenance.origin) {
                    return Ok(Verdict::Drop(DropReason::Origin));
                }
            }
        }
        if !provenance.hops.contains(&self.source) {
            // the mark of the writer takes one more entry
            if provenance.hops.len() + 1 >= MAX_HOPS {
                return Err(Error::TooManyHops {
                    at: record.place(),
                    hops: provenance.hops.len() + 1,
                });
            }
            provenance.hops.push(self.source.clone());
        }
        Ok(if copied {
            Verdict::Copied(provenance)
        } else {
            Verdict::Keep(provenance)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{LoopGuard, Verdict};
    use crate::error::Error;
    use crate::header::{self, MAX_HOPS, Mark, NAME, Provenance, Writer};
    use crate::types::{DropReason, HeaderRef, RecordRef, Written};
    use proptest::prelude::*;

    fn guard(source: &str, target: &str, origins: Option<&[&str]>) -> LoopGuard {
        let origins = origins.map(|ids| ids.iter().map(|id| (*id).to_owned()).collect());
        LoopGuard::new(source, target, origins, true).unwrap()
    }

    fn record<'a>(topic: &'a str, headers: &'a [HeaderRef<'a>]) -> RecordRef<'a> {
        RecordRef {
            topic,
            partition: 0,
            offset: 7,
            leader_epoch: 0,
            timestamp: 1,
            key: None,
            value: Some(b"v"),
            headers,
            written: Written::By(7),
        }
    }

    fn provenance(origin: &str, hops: &[&str]) -> Provenance {
        Provenance {
            origin: origin.to_owned(),
            hops: hops.iter().map(|hop| (*hop).to_owned()).collect(),
        }
    }

    fn judge(guard: &LoopGuard, topic: &str, bytes: &[u8]) -> Result<Verdict, Error> {
        let headers = [HeaderRef {
            key: NAME.as_bytes(),
            value: Some(bytes),
        }];
        guard.judge(&record(topic, &headers))
    }

    fn mark(cluster: &str) -> Mark {
        Writer::new(cluster, 7).unwrap().mark(0, 1)
    }

    /// Returns a record with the marked header of `y`'s copy on `x`, which `written` wrote.
    fn emitted(
        written: Written,
        partition: i32,
        provenance: &Provenance,
        mark: Option<&Mark>,
    ) -> Verdict {
        let bytes = provenance.encode("t", None, Some(b"v"), mark);
        let headers = [HeaderRef {
            key: NAME.as_bytes(),
            value: Some(&bytes),
        }];
        let record = RecordRef {
            partition,
            written,
            ..record("t", &headers)
        };
        guard("x", "y", Some(&["x"])).judge(&record).unwrap()
    }

    #[test]
    fn a_record_that_another_producer_emits_again_is_local() {
        let (from_y, mark) = (provenance("y", &["y"]), mark("x"));
        let local = Verdict::Copied(provenance("x", &["x"]));
        let hop = Verdict::Drop(DropReason::Hop);
        for (written, partition, expected) in [
            (Written::By(7), 0, &hop),
            (Written::By(8), 0, &local),
            (Written::By(-1), 0, &local),
            (Written::At(1), 0, &hop),
            (Written::At(2), 0, &local),
            (Written::At(1), 1, &local),
            (Written::Unknown, 0, &hop),
        ] {
            let verdict = emitted(written, partition, &from_y, Some(&mark));
            assert_eq!(&verdict, expected, "{written:?}, partition {partition}");
        }
    }

    #[test]
    fn a_header_without_a_mark_counts_as_in_older_releases() {
        let verdict = emitted(Written::By(8), 0, &provenance("y", &["y"]), None);
        assert_eq!(verdict, Verdict::Drop(DropReason::Hop));
    }

    #[test]
    fn a_header_that_another_replicator_copied_counts() {
        let verdict = emitted(
            Written::By(8),
            0,
            &provenance("y", &["y"]),
            Some(&mark("z")),
        );
        assert_eq!(verdict, Verdict::Drop(DropReason::Hop));
    }

    #[test]
    fn a_mark_that_an_older_release_passed_on_says_nothing() {
        // the older release takes the mark for a cluster, and appends its own hop
        let marked = provenance("y", &["y"]).encode("t", None, Some(b"v"), Some(&mark("x")));
        let header::Reading::Ours(_, Some(_)) = header::read(&marked, "t", None, Some(b"v")) else {
            panic!("it has a mark");
        };
        let mut again = marked.clone();
        again.extend_from_slice(b"\x01w");
        let at = marked.windows(2).rposition(|pair| pair[1] == b'@').unwrap();
        assert_eq!(again[at - 1], 2, "mark and hop");
        again[at - 1] = 3;
        let headers = [HeaderRef {
            key: NAME.as_bytes(),
            value: Some(&again),
        }];
        let record = RecordRef {
            written: Written::By(8),
            ..record("t", &headers)
        };
        let verdict = guard("x", "z", None).judge(&record);
        let kept = provenance("y", &["y", "w", "x"]);
        assert_eq!(verdict, Ok(Verdict::Keep(kept)));
    }

    #[test]
    fn a_record_without_a_header_is_local() {
        let kept = guard("x", "y", Some(&["x"])).judge(&record("t", &[]));
        assert_eq!(kept, Ok(Verdict::Keep(provenance("x", &["x"]))));
    }

    #[test]
    fn a_record_that_has_been_on_the_target_is_dropped() {
        let bytes = provenance("y", &["y"]).encode("t", None, Some(b"v"), None);
        let dropped = judge(&guard("x", "y", None), "t", &bytes);
        assert_eq!(dropped, Ok(Verdict::Drop(DropReason::Hop)));
    }

    #[test]
    fn an_origin_outside_of_the_tree_is_dropped() {
        let bytes = provenance("z", &["z"]).encode("t", None, Some(b"v"), None);
        let dropped = judge(&guard("x", "y", Some(&["x"])), "t", &bytes);
        assert_eq!(dropped, Ok(Verdict::Drop(DropReason::Origin)));
        let kept = judge(&guard("x", "y", Some(&["x", "z"])), "t", &bytes);
        assert_eq!(kept, Ok(Verdict::Keep(provenance("z", &["z", "x"]))));
    }

    #[test]
    fn a_local_record_is_dropped_where_only_others_are_forwarded() {
        let dropped = guard("x", "y", Some(&["z"])).judge(&record("t", &[]));
        assert_eq!(dropped, Ok(Verdict::Drop(DropReason::Origin)));
    }

    #[test]
    fn a_header_copied_to_another_topic_makes_the_record_local() {
        let bytes = provenance("y", &["y"]).encode("elsewhere", None, Some(b"v"), None);
        let kept = judge(&guard("x", "y", Some(&["x"])), "t", &bytes);
        assert_eq!(kept, Ok(Verdict::Copied(provenance("x", &["x"]))));
    }

    #[test]
    fn a_null_provenance_header_makes_the_record_local() {
        let headers = [HeaderRef {
            key: NAME.as_bytes(),
            value: None,
        }];
        let kept = guard("x", "y", None).judge(&record("t", &headers));
        assert_eq!(kept, Ok(Verdict::Keep(provenance("x", &["x"]))));
    }

    #[test]
    fn an_unknown_version_is_an_error_that_names_the_record() {
        let mut bytes = provenance("y", &["y"]).encode("t", None, Some(b"v"), None);
        bytes[2] = 9;
        let error = judge(&guard("x", "y", None), "t", &bytes).unwrap_err();
        assert_eq!(
            error,
            Error::UnknownHeaderVersion {
                at: "t-0@7".into(),
                version: 9,
                known: 1,
            }
        );
    }

    #[test]
    fn a_full_header_is_an_error_and_not_a_silent_cut() {
        let hops: Vec<String> = (1..MAX_HOPS).map(|hop| format!("c{hop}")).collect();
        let full = Provenance {
            origin: "c1".into(),
            hops,
        };
        let bytes = full.encode("t", None, Some(b"v"), None);
        assert!(matches!(
            judge(&guard("x", "y", None), "t", &bytes),
            Err(Error::TooManyHops { hops: 64, .. })
        ));
    }

    #[test]
    fn an_unenforced_guard_extends_provenance_and_drops_nothing() {
        let guard = LoopGuard::new("x", "y", None, false).unwrap();
        let bytes = provenance("y", &["y"]).encode("t", None, Some(b"v"), None);
        assert_eq!(
            judge(&guard, "t", &bytes),
            Ok(Verdict::Keep(provenance("y", &["y", "x"])))
        );
    }

    #[test]
    fn an_empty_cluster_id_is_refused() {
        assert!(LoopGuard::new("", "y", None, true).is_err());
        assert!(LoopGuard::new("x", &"y".repeat(256), None, true).is_err());
    }

    proptest! {
        /// However clusters are linked, a record that is forwarded hop by hop never passes a cluster twice.
        #[test]
        fn no_walk_visits_a_cluster_twice(walk in proptest::collection::vec(0_u8..6, 2..20)) {
            let mut bytes = Vec::new();
            let mut visited = vec![walk[0]];
            for pair in walk.windows(2) {
                if pair[0] == pair[1] {
                    continue;
                }
                let (from, to) = (format!("c{}", pair[0]), format!("c{}", pair[1]));
                match judge(&guard(&from, &to, None), "t", &bytes).unwrap() {
                    Verdict::Drop(reason) => {
                        prop_assert_eq!(reason, DropReason::Hop);
                        prop_assert!(visited.contains(&pair[1]));
                        break;
                    }
                    Verdict::Copied(next) | Verdict::Keep(next) => {
                        prop_assert!(!visited.contains(&pair[1]));
                        visited.push(pair[1]);
                        prop_assert_eq!(&next.origin, &format!("c{}", walk[0]));
                        bytes = next.encode("t", None, Some(b"v"), Some(&mark(&to)));
                    }
                }
            }
        }
    }
}

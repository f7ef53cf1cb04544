//! Which records a link forwards when names are equal on several clusters.
//!
//! Two lines of defence. *Origin*: a link forwards only origins of its own tree, because in a mesh a record would
//! otherwise reach a cluster directly and through a third one. *Hop*: a record never returns to a cluster that it
//! has passed; this holds even where the trees of two processes disagree.
//!
//! A record without a header of its own is local: it originates in the cluster that it was read from.

use std::collections::HashSet;

use crate::error::Error;
use crate::header::{self, MAX_HOPS, Provenance, Reading, check_cluster_id};
use crate::types::{DropReason, RecordRef};

/// What a link knows about itself.
#[derive(Debug, Clone)]
pub struct LoopGuard {
    source: String,
    target: String,
    origins: Option<HashSet<String>>,
    enforced: bool,
}

/// The decision about one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Forward; a provenance header, where one is written, says this.
    Keep(Provenance),
    /// Leave out, and count.
    Drop(DropReason),
}

impl LoopGuard {
    /// A guard for the link from cluster `source` to cluster `target`.
    ///
    /// `origins` are the cluster ids that may be forwarded, `None` for any. A guard that is not `enforced` never
    /// drops: it only carries provenance on.
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

    /// Whether records may be dropped.
    #[must_use]
    pub fn enforced(&self) -> bool {
        self.enforced
    }

    /// Decides about `record`. When a record has several provenance headers the last one counts, as in
    /// `Headers.lastHeader` of Kafka's own client.
    pub fn judge(&self, record: &RecordRef<'_>) -> Result<Verdict, Error> {
        let found = record
            .headers
            .iter()
            .rev()
            .find(|header| header.key == header::NAME.as_bytes())
            .and_then(|header| header.value);
        let reading = found.map_or(Reading::Foreign, |bytes| {
            header::read(bytes, record.topic, record.key, record.value)
        });
        let mut provenance = match reading {
            Reading::Ours(provenance) => provenance,
            Reading::Foreign => Provenance {
                origin: self.source.clone(),
                hops: Vec::new(),
            },
            Reading::UnknownVersion(version) => {
                return Err(Error::UnknownHeaderVersion {
                    at: record.place(),
                    version,
                });
            }
        };
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
            if provenance.hops.len() >= MAX_HOPS {
                return Err(Error::TooManyHops {
                    at: record.place(),
                    hops: provenance.hops.len() + 1,
                });
            }
            provenance.hops.push(self.source.clone());
        }
        Ok(Verdict::Keep(provenance))
    }
}

#[cfg(test)]
mod tests {
    use super::{LoopGuard, Verdict};
    use crate::error::Error;
    use crate::header::{MAX_HOPS, NAME, Provenance};
    use crate::types::{DropReason, HeaderRef, RecordRef};
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

    #[test]
    fn a_record_without_a_header_is_local() {
        let kept = guard("x", "y", Some(&["x"])).judge(&record("t", &[]));
        assert_eq!(kept, Ok(Verdict::Keep(provenance("x", &["x"]))));
    }

    #[test]
    fn a_record_that_has_been_on_the_target_is_dropped() {
        let bytes = provenance("y", &["y"]).encode("t", None, Some(b"v"));
        let dropped = judge(&guard("x", "y", None), "t", &bytes);
        assert_eq!(dropped, Ok(Verdict::Drop(DropReason::Hop)));
    }

    #[test]
    fn an_origin_outside_of_the_tree_is_dropped() {
        let bytes = provenance("z", &["z"]).encode("t", None, Some(b"v"));
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
        let bytes = provenance("y", &["y"]).encode("elsewhere", None, Some(b"v"));
        let kept = judge(&guard("x", "y", Some(&["x"])), "t", &bytes);
        assert_eq!(kept, Ok(Verdict::Keep(provenance("x", &["x"]))));
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
        let mut bytes = provenance("y", &["y"]).encode("t", None, Some(b"v"));
        bytes[2] = 9;
        let error = judge(&guard("x", "y", None), "t", &bytes).unwrap_err();
        assert_eq!(
            error,
            Error::UnknownHeaderVersion {
                at: "t-0@7".into(),
                version: 9
            }
        );
    }

    #[test]
    fn a_full_header_is_an_error_and_not_a_silent_cut() {
        let hops: Vec<String> = (0..MAX_HOPS).map(|hop| format!("c{hop}")).collect();
        let full = Provenance {
            origin: "c0".into(),
            hops,
        };
        let bytes = full.encode("t", None, Some(b"v"));
        assert!(matches!(
            judge(&guard("x", "y", None), "t", &bytes),
            Err(Error::TooManyHops { hops: 65, .. })
        ));
    }

    #[test]
    fn a_guard_that_is_not_enforced_carries_provenance_and_drops_nothing() {
        let guard = LoopGuard::new("x", "y", None, false).unwrap();
        let bytes = provenance("y", &["y"]).encode("t", None, Some(b"v"));
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
        /// However clusters are linked, a record that is forwarded hop by hop never meets a cluster twice.
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
                    Verdict::Keep(next) => {
                        prop_assert!(!visited.contains(&pair[1]));
                        visited.push(pair[1]);
                        prop_assert_eq!(&next.origin, &format!("c{}", walk[0]));
                        bytes = next.encode("t", None, Some(b"v"));
                    }
                }
            }
        }
    }
}

//! Failures of a lane, each with a kind for adapters that do not list variants.

use std::fmt;
use std::ops::Range;

use eomirror_batch::{BatchError, Mark};
use eomirror_core::relay::RelayError;

use eomirror_kafka::{Error, ErrorCode, Kind, LogBounds, Meaning, Stop, TopicPartition};

/// Defines the kinds, and the names by which adapters know them.
macro_rules! kinds {
    ($($(#[$doc:meta])+ $kind:ident = $name:literal,)+) => {
        /// The reaction that a [`Failure`] requires.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum FailureKind {
            $($(#[$doc])+ $kind,)+
        }

        impl FailureKind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$kind,)+];

            /// Returns the name by which adapters know it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                }
            }
        }
    };
}

kinds! {
    /// Only another plane supports the configuration or this target.
    Unhonoured = "unhonoured",
    /// The configuration is invalid, or a broker refuses a setting. An operator has to act.
    Configuration = "configuration",
    /// A right or a credential is missing. An operator has to act.
    Unauthorized = "unauthorized",
    /// A broker is incompatible with this release.
    Protocol = "protocol",
    /// A broker did not answer. A retry may succeed.
    Unreachable = "unreachable",
    /// The transaction must be aborted and can be repeated.
    Abortable = "abortable",
    /// The target refuses a batch for its content; [`Failure::refused`] names it.
    Refused = "refused",
    /// Another producer has taken the transactional id, or the transaction exceeded its timeout.
    Superseded = "superseded",
    /// A commit was sent, and its outcome is unknown.
    OutcomeUnknown = "outcome-unknown",
    /// The source's log diverges from the mirrored one.
    Truncated = "truncated",
    /// The batch before the position is not the mirrored one (rule 5).
    Rewritten = "rewritten",
    /// Offsets are missing between two batches of the source's log (rule 6).
    Hole = "hole",
    /// The position is not within the source's log.
    Gap = "gap",
    /// A topic or a partition does not exist, or is not the intended one, on either side.
    TopicGone = "topic-gone",
    /// Bytes are damaged, on the way or in the source. Another fetch may return whole ones.
    Damaged = "damaged",
    /// The source's leader cannot read a partition, for an unknown reason. A retry may succeed.
    Unreadable = "unreadable",
    /// Records of a message format that only librdkafka reads.
    OldFormat = "old-format",
    /// One topic cannot be mirrored as it is; others can.
    Topic = "topic",
    /// Rule 7: the accounts do not balance.
    Unaccounted = "unaccounted",
    /// A call that is invalid here: a bug of the caller.
    Bug = "misuse",
}

/// Records that the target refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedBatch {
    /// Their source partition; None for state records.
    pub source: Option<TopicPartition>,
    /// The topic that refuses them.
    pub target_topic: String,
    /// Source offset of the first record.
    pub first: i64,
    /// Source offset of the last one.
    pub last: i64,
    /// The broker's code; 10 (`MESSAGE_TOO_LARGE`) also for a record that was not sent.
    pub code: ErrorCode,
}

/// A committed position that is not in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// Next offset to fetch as committed; later fetched records are in no committed transaction.
    pub position: i64,
    /// The log as its leader described it afterwards.
    pub log: LogBounds,
}

/// The reason that a lane stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The required reaction.
    pub kind: FailureKind,
    /// The event and its place; lower case.
    pub message: String,
    /// The remedy, as an imperative.
    pub fix: &'static str,
    /// The source partition, if it concerns one.
    pub partition: Option<TopicPartition>,
    /// The refused records, for [`FailureKind::Refused`].
    pub refused: Option<Box<RefusedBatch>>,
    /// The missing offsets, for [`FailureKind::Gap`] and [`FailureKind::Hole`]; None when the source did not report its
    /// log's bounds.
    pub gap: Option<Gap>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl Failure {
    pub(super) fn new(kind: FailureKind, message: String, fix: &'static str) -> Self {
        Self {
            kind,
            message,
            fix,
            partition: None,
            refused: None,
            gap: None,
        }
    }

    /// Returns the failure of an invalid call: a bug of the caller.
    #[must_use]
    pub fn bug(message: &str) -> Self {
        let fix = "this is a bug of eomirror; report it";
        Self::new(FailureKind::Bug, message.to_owned(), fix)
    }

    pub(super) fn about(mut self, partition: &TopicPartition) -> Self {
        self.partition = Some(partition.clone());
        self
    }

    pub(super) fn unaccounted(message: String) -> Self {
        let fix = "abort the transaction and rebuild the lane from its committed positions";
        Self::new(FailureKind::Unaccounted, message, fix)
    }

    /// Returns the failure of a partition that has stopped, with its committed position.
    pub(super) fn stopped(partition: &TopicPartition, position: i64, stop: &Stop) -> Self {
        let (kind, fix) = match stop {
            Stop::OutOfRange { .. } => (FailureKind::Gap, "compare the position with the log"),
            Stop::Truncated { .. } => (
                FailureKind::Truncated,
                "find out whether the source was restored",
            ),
            Stop::Replaced { .. } | Stop::Gone => {
                (FailureKind::TopicGone, "compare the topics' ids")
            }
            Stop::Unreadable { code } if *code == ErrorCode::CORRUPT_MESSAGE => (
                FailureKind::Damaged,
                "have another replica lead the partition",
            ),
            Stop::Unreadable { .. } => (FailureKind::Unreadable, "check the broker's log"),
            Stop::Refused { code } => match code.meaning() {
                Meaning::Refused => (
                    FailureKind::Unauthorized,
                    "grant the right to read the topic to this user",
                ),
                _ if matches!(
                    *code,
                    ErrorCode::UNSUPPORTED_VERSION | ErrorCode::UNSUPPORTED_COMPRESSION_TYPE
                ) =>
                {
                    (
                        FailureKind::Configuration,
                        "use brokers of Kafka 2.8 or newer",
                    )
                }
                _ => (FailureKind::Unreadable, "check the broker's log"),
            },
        };
        let mut failure = Self::new(kind, format!("{partition}: {stop}"), fix);
        if !matches!(stop, Stop::Refused { code } if code.concerns_everything()) {
            failure = failure.about(partition);
        }
        if let Stop::OutOfRange { log: Some(log) } = stop {
            failure.gap = Some(Gap {
                position,
                log: *log,
            });
        }
        failure
    }

    /// Returns the failure of a transaction that must not replace the positions before it.
    pub(super) fn leaders_moved() -> Self {
        Self::new(
            FailureKind::Abortable,
            "rule 5: a copy has a new leader, and is compared before a position replaces the one that tells its end"
                .to_owned(),
            "nothing: the lane starts anew",
        )
    }

    /// Returns the failure of a log without the batch that was mirrored last.
    pub(super) fn rewritten(partition: &TopicPartition, expected: &Mark, found: &Mark) -> Self {
        let told = |mark: &Mark| {
            format!(
                "a batch from offset {} with CRC {:#010x} and largest timestamp {}",
                mark.base_offset, mark.crc, mark.max_timestamp
            )
        };
        let message = format!(
            "{partition}: the source holds {}, where {} was mirrored",
            told(found),
            told(expected)
        );
        let fix = "find out whether the source was restored from an older state";
        Self::new(FailureKind::Rewritten, message, fix).about(partition)
    }

    /// Returns the failure of a log without a batch for these offsets.
    pub(super) fn hole(partition: &TopicPartition, hole: &Range<i64>) -> Self {
        let message = format!(
            "{partition}: no batch of the source's log has offsets [{}, {})",
            hole.start, hole.end
        );
        let fix = "find out whether the source has lost a part of its log";
        let mut failure = Self::new(FailureKind::Hole, message, fix).about(partition);
        failure.gap = Some(Gap {
            position: hole.start,
            log: LogBounds {
                start: hole.end,
                end: hole.end,
            },
        });
        failure
    }

    /// Returns the failure of records that cannot be relayed.
    pub(super) fn relayed(
        partition: &TopicPartition,
        target_topic: &str,
        error: &RelayError,
    ) -> Self {
        let kind = match error {
            RelayError::RecordTooLarge { .. } => FailureKind::Refused,
            RelayError::Batch { error, .. } if is_damage(error) => FailureKind::Damaged,
            RelayError::Batch {
                error: BatchError::OldMagic { .. },
                ..
            } => FailureKind::OldFormat,
            _ if error.kind() == eomirror_core::Kind::Transaction => FailureKind::Unaccounted,
            _ => FailureKind::Topic,
        };
        let mut failure = Self::new(kind, error.to_string(), error.fix()).about(partition);
        if let RelayError::RecordTooLarge { offset, .. } = error {
            failure.refused = Some(Box::new(RefusedBatch {
                source: Some(partition.clone()),
                target_topic: target_topic.to_owned(),
                first: *offset,
                last: *offset,
                code: ErrorCode::MESSAGE_TOO_LARGE,
            }));
        }
        failure
    }

    /// Converts an error of the client. `source_of` returns a source partition by its number.
    pub(super) fn of_client(
        error: &Error,
        source_of: impl Fn(u32) -> Option<TopicPartition>,
    ) -> Self {
        let mut failure = Self::new(kind_of(error), error.to_string(), crate::fix_of(error));
        if let Error::MustAbort {
            batch: Some((target, range)),
            code,
            ..
        } = error
        {
            let source = source_of(range.partition);
            failure.partition.clone_from(&source);
            if failure.kind == FailureKind::Refused {
                failure.refused = Some(Box::new(RefusedBatch {
                    source,
                    target_topic: target.topic.clone(),
                    first: range.first,
                    last: range.last,
                    code: *code,
                }));
            }
        }
        failure
    }
}

impl From<Error> for Failure {
    /// Converts an error that concerns no source partition.
    fn from(error: Error) -> Self {
        Self::of_client(&error, |_| None)
    }
}

/// Returns whether a broker cannot have accepted the batch: its header is checked before its checksum.
const fn is_damage(error: &BatchError) -> bool {
    use BatchError::{BadField, OffsetWentBack, Truncated, WrongCrc};
    matches!(
        error,
        WrongCrc { .. } | Truncated { .. } | BadField { .. } | OffsetWentBack { .. }
    )
}

fn kind_of(error: &Error) -> FailureKind {
    match error {
        Error::MustAbort { code, batch, .. } => match *code {
            code if batch.is_some() && code.refuses_content() => FailureKind::Refused,
            // a leader with a newer epoch: of a successor, or of the coordinator's own abort after the timeout
            ErrorCode::INVALID_PRODUCER_EPOCH | ErrorCode::PRODUCER_FENCED => {
                FailureKind::Superseded
            }
            // codecs and formats that the target does not support
            ErrorCode::UNSUPPORTED_FOR_MESSAGE_FORMAT | ErrorCode::UNSUPPORTED_COMPRESSION_TYPE => {
                FailureKind::Configuration
            }
            code if code.meaning() == Meaning::Refused => FailureKind::Unauthorized,
            _ => FailureKind::Abortable,
        },
        // librdkafka serves older brokers
        Error::Unsupported { .. } => FailureKind::Unhonoured,
        // the connection is closed, and the next one may return a whole answer
        Error::Malformed { .. } => FailureKind::Abortable,
        Error::Refused { code, .. } if *code == ErrorCode::INVALID_TRANSACTION_TIMEOUT => {
            FailureKind::Configuration
        }
        // the coordinator has lost its state, or reports an unknown code: a new producer starts over
        Error::Refused { code, .. }
            if code.meaning() == Meaning::Final
                && !matches!(
                    *code,
                    // a broker repeats these to any client
                    ErrorCode::UNSUPPORTED_VERSION | ErrorCode::PRINCIPAL_DESERIALIZATION_FAILURE
                ) =>
        {
            FailureKind::Abortable
        }
        _ => match error.kind() {
            Kind::Unhonoured => FailureKind::Unhonoured,
            Kind::Configuration => FailureKind::Configuration,
            Kind::Unauthorized => FailureKind::Unauthorized,
            Kind::Unreachable => FailureKind::Unreachable,
            Kind::Abortable => FailureKind::Abortable,
            Kind::Superseded => FailureKind::Superseded,
            Kind::Bug => FailureKind::Bug,
            Kind::Protocol => FailureKind::Protocol,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use eomirror_batch::BatchError;
    use eomirror_core::relay::RelayError;
    use eomirror_kafka::SourceRange;

    use super::{Failure, FailureKind, Gap};
    use eomirror_kafka::{Error, ErrorCode, LogBounds, Stop, TopicPartition};

    fn refused(code: i16) -> Failure {
        let range = SourceRange {
            partition: 3,
            first: 10,
            last: 19,
        };
        let error = Error::MustAbort {
            what: "t-0".to_owned(),
            batch: Some((TopicPartition::new("t", 0), range)),
            code: ErrorCode(code),
        };
        Failure::of_client(&error, |number| {
            (number == 3).then(|| TopicPartition::new("s", 0))
        })
    }

    #[test]
    fn every_kind_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = FailureKind::ALL.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), FailureKind::ALL.len());
    }

    #[test]
    fn a_broker_that_is_too_old_is_left_to_another_plane() {
        let failure = Failure::from(Error::Unsupported {
            peer: "h:1".to_owned(),
            api: "Fetch",
            ours: (12, 17),
            theirs: Some((4, 11)),
        });
        assert_eq!(failure.kind, FailureKind::Unhonoured);
    }

    #[test]
    fn a_refused_batch_is_named_with_its_source_and_offsets() {
        let failure = refused(10);
        assert_eq!(failure.kind, FailureKind::Refused);
        let batch = failure.refused.unwrap();
        assert_eq!(batch.source, Some(TopicPartition::new("s", 0)));
        assert_eq!(
            (batch.first, batch.last, batch.code),
            (10, 19, ErrorCode::MESSAGE_TOO_LARGE)
        );
    }

    #[test]
    fn a_leaders_refusal_is_read_by_its_code() {
        for (code, kind) in [
            (32, FailureKind::Refused),
            (87, FailureKind::Refused),
            (47, FailureKind::Superseded),
            (29, FailureKind::Unauthorized),
            (76, FailureKind::Configuration),
            (45, FailureKind::Abortable),
            (120, FailureKind::Abortable),
        ] {
            assert_eq!(refused(code).kind, kind, "{code}");
        }
    }

    #[test]
    fn a_coordinators_refusal_is_read_by_its_code() {
        let kind_of = |code| {
            let error = Error::Refused {
                what: "transactional.id t".to_owned(),
                code: ErrorCode(code),
            };
            Failure::from(error).kind
        };
        // lost sequences, epoch, state or id, or an unknown code: a new producer starts over
        for code in [45, 47, 48, 49, 59, 120, 42, 52, 999] {
            assert_eq!(kind_of(code), FailureKind::Abortable, "{code}");
        }
        assert_eq!(kind_of(-1), FailureKind::Unreachable);
        assert_eq!(kind_of(35), FailureKind::Protocol);
        assert_eq!(kind_of(50), FailureKind::Configuration);
        assert_eq!(kind_of(53), FailureKind::Unauthorized);
        let fenced = Error::Fenced {
            transactional_id: "t".to_owned(),
            code: ErrorCode(90),
        };
        assert_eq!(Failure::from(fenced).kind, FailureKind::Superseded);
        let not_committed = Error::NotCommitted {
            code: ErrorCode(48),
        };
        assert_eq!(Failure::from(not_committed).kind, FailureKind::Abortable);
    }

    #[test]
    fn unrelayable_bytes_are_damaged_refused_or_stop_their_topic() {
        let at = TopicPartition::new("s", 1);
        let wrong_crc = BatchError::WrongCrc {
            offset: 7,
            stored: 1,
            computed: 2,
        };
        let impossible = BatchError::BadField {
            offset: 7,
            field: "its record count",
            value: -9,
        };
        let (offset, magic) = (7, 1);
        for (error, kind) in [
            (wrong_crc, FailureKind::Damaged),
            (impossible, FailureKind::Damaged),
            (
                BatchError::OldMagic { offset, magic },
                FailureKind::OldFormat,
            ),
            (
                BatchError::UnknownMagic { offset, magic: 3 },
                FailureKind::Topic,
            ),
        ] {
            let error = RelayError::Batch {
                topic: "s".to_owned(),
                partition: 1,
                error,
            };
            let failure = Failure::relayed(&at, "t", &error);
            assert_eq!((failure.kind, failure.partition), (kind, Some(at.clone())));
        }
        let large = RelayError::RecordTooLarge {
            at: "s-1@7".to_owned(),
            offset: 7,
            bytes: 2_000,
            limit: Some(1_000),
        };
        let failure = Failure::relayed(&at, "t", &large);
        assert_eq!(failure.kind, FailureKind::Refused);
        let batch = failure.refused.unwrap();
        assert_eq!(batch.source, Some(at));
        assert_eq!(
            (batch.first, batch.last, batch.code),
            (7, 7, ErrorCode::MESSAGE_TOO_LARGE)
        );
    }

    #[test]
    fn a_stopped_partition_says_what_recovery_has_to_look_for() {
        let at = TopicPartition::new("s", 1);
        let truncated = Stop::Truncated {
            epoch: 3,
            end_offset: 7,
        };
        let code = ErrorCode;
        for (stop, kind) in [
            (Stop::Unreadable { code: code(2) }, FailureKind::Damaged),
            (Stop::Unreadable { code: code(-1) }, FailureKind::Unreadable),
            // a code that no Fetch returns
            (Stop::Refused { code: code(42) }, FailureKind::Unreadable),
            (Stop::OutOfRange { log: None }, FailureKind::Gap),
            (Stop::Gone, FailureKind::TopicGone),
            (truncated, FailureKind::Truncated),
            (Stop::Refused { code: code(29) }, FailureKind::Unauthorized),
        ] {
            let failure = Failure::stopped(&at, 5, &stop);
            assert_eq!((failure.kind, failure.partition), (kind, Some(at.clone())));
            assert_eq!(failure.gap, None);
        }
        // a wrong identity is no fault of a topic
        let unknown = Stop::Refused { code: code(58) };
        let failure = Failure::stopped(&at, 5, &unknown);
        assert_eq!(
            (failure.kind, failure.partition),
            (FailureKind::Unauthorized, None)
        );
    }

    #[test]
    fn a_gap_is_told_from_the_committed_position_to_the_log() {
        let log = LogBounds { start: 40, end: 90 };
        let stop = Stop::OutOfRange { log: Some(log) };
        let failure = Failure::stopped(&TopicPartition::new("s", 1), 5, &stop);
        assert_eq!(failure.gap, Some(Gap { position: 5, log }));
        assert!(failure.message.ends_with("[40, 90)"), "{failure}");
    }
}

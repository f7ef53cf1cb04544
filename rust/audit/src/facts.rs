//! Decodes the records of the state topics, as far as the audit needs them.
//!
//! The formats are those of `eomirror.records.position` and `eomirror.records.offset_map` in Python, and of
//! [`eomirror_core::offset_map`]. A value of another version is rejected.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::report::{Producer, TransactionName};
use eomirror_core::offset_map::{self, Range};

const VERSION: i64 = 1;

/// A source partition.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Source {
    pub(super) topic: Arc<str>,
    pub(super) partition: i32,
}

/// A record of the positions topic.
#[derive(Debug, Clone)]
pub(super) enum Stated {
    /// The claim of a lane's attempt.
    Claim,
    /// The position of a source partition.
    Position(Box<Position>),
}

/// The position of a source partition.
#[derive(Debug, Clone)]
pub(super) struct Position {
    pub(super) source: Source,
    pub(super) offset: i64,
    pub(super) prev: Option<i64>,
    pub(super) topic_id: String,
    pub(super) leader_epoch: Option<i64>,
    pub(super) target_topic: String,
    pub(super) target_partition: i32,
    pub(super) target_topic_id: String,
    pub(super) target_offset: Option<i64>,
    pub(super) generation: i64,
    pub(super) records: i64,
    pub(super) total_records: i64,
    pub(super) name: TransactionName,
}

impl Position {
    /// Returns true if the position was set outside of a lane's data: a first position, an adopted one, or one after a
    /// gap.
    pub(super) fn is_set(&self) -> bool {
        self.name.txn == 0
    }
}

/// A record of the offset map.
#[derive(Debug, Clone)]
pub(super) struct Chunk {
    pub(super) source: Source,
    pub(super) topic_id: String,
    pub(super) first: i64,
    pub(super) target_topic: String,
    pub(super) target_partition: i32,
    pub(super) ranges: Vec<Range>,
}

/// Decodes a record of the positions topic, or returns the fault.
pub(super) fn stated(key: &[u8], value: &[u8]) -> Result<Stated, &'static str> {
    let key = Fields::read(key).ok_or("its key is not a JSON object")?;
    let body = Fields::read(value).ok_or("its value is not a JSON object")?;
    if body.number("v") != Some(VERSION) {
        return Err("its version is not supported by this release");
    }
    if key.number("lane").is_some() {
        return Ok(Stated::Claim);
    }
    position(&key, &body)
        .map(|position| Stated::Position(Box::new(position)))
        .ok_or("fields of a position are missing or invalid")
}

/// Decodes a record of the offset map, or returns the fault.
///
/// `None` for a merged chunk: it repeats earlier transactions, and claims no records of its own.
pub(super) fn chunk(key: &[u8], value: &[u8]) -> Result<Option<Chunk>, String> {
    let key = Fields::read(key).ok_or("its key is not a JSON object")?;
    let named = || {
        Some((
            Source {
                topic: key.text("topic")?.into(),
                partition: key.partition("partition")?,
            },
            key.text("topic_id")?.to_owned(),
            key.number("first")?,
        ))
    };
    let (source, topic_id, first) = named().ok_or("its key does not name a chunk")?;
    let chunk = offset_map::decode(value).map_err(|error| error.to_string())?;
    if key.number("merged").is_some() {
        return Ok(None);
    }
    Ok(Some(Chunk {
        source,
        topic_id,
        first,
        target_topic: chunk.topic,
        target_partition: chunk.partition,
        ranges: chunk.map.ranges().to_vec(),
    }))
}

fn position(key: &Fields, body: &Fields) -> Option<Position> {
    Some(Position {
        source: Source {
            topic: key.text("topic")?.into(),
            partition: key.partition("partition")?,
        },
        offset: body.number("offset").filter(|offset| *offset >= 0)?,
        prev: body.optional("prev")?,
        topic_id: body.text("topic_id")?.to_owned(),
        leader_epoch: body.optional("leader_epoch")?,
        target_topic: body.text("target_topic")?.to_owned(),
        target_partition: body.partition("target_partition")?,
        target_topic_id: body.text("target_topic_id")?.to_owned(),
        target_offset: body.optional("target_offset")?,
        generation: body.number("generation")?,
        records: body.number("records").filter(|records| *records >= 0)?,
        total_records: body.number("total_records")?,
        name: TransactionName {
            run: body.text("run")?.into(),
            lane: body.number("lane")?,
            epoch: body.number("epoch")?,
            attempt: body.number("attempt")?,
            txn: body.number("txn")?,
            producer: Producer {
                id: body.number("producer_id")?,
                epoch: i16::try_from(body.number("producer_epoch")?).ok()?,
            },
        },
    })
}

/// The fields of a JSON object. The last one of a name counts.
struct Fields(Map<String, Value>);

impl Fields {
    /// Returns the fields of the object in `bytes`; `None` if they are not one object.
    fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok().map(Self)
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.0.get(name)?.as_i64()
    }

    fn partition(&self, name: &str) -> Option<i32> {
        i32::try_from(self.number(name)?)
            .ok()
            .filter(|partition| *partition >= 0)
    }

    /// Returns a number or null; `None` for anything else.
    #[allow(clippy::option_option)] // absent and null are not the same here
    fn optional(&self, name: &str) -> Option<Option<i64>> {
        match self.0.get(name)? {
            Value::Null => Some(None),
            value => value.as_i64().map(Some),
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Fields, Stated, chunk, stated};
    use eomirror_core::offset_map::{OffsetMap, Range};

    const KEY: &[u8] = br#"{"topic":"t","partition":3}"#;
    const VALUE: &str = r#"{"v":1,"offset":12,"prev":null,"source_cluster_id":"c","topic_id":"a",
        "leader_epoch":0,"target_topic":"east.t","target_partition":3,"target_topic_id":"b",
        "target_offset":7,"generation":1,"lane":0,"run":"r","epoch":1,"attempt":1,"producer_id":9,
        "producer_epoch":2,"txn":4,"records":5,"bytes":6,"dropped":{"loop":1},"header":false,
        "timestamp":1,"source_timestamp":null,"total_records":5,"digest":"","later":[1]}"#;

    #[test]
    fn a_position_is_read_and_unknown_fields_are_passed_over() {
        let Ok(Stated::Position(position)) = stated(KEY, VALUE.as_bytes()) else {
            panic!("not a position");
        };
        assert_eq!(
            (&*position.source.topic, position.source.partition),
            ("t", 3)
        );
        assert_eq!((position.prev, position.offset), (None, 12));
        assert_eq!((position.name.txn, position.name.producer.epoch), (4, 2));
    }

    #[test]
    fn what_is_no_position_says_why() {
        let wrong =
            |from: &str, to: &str| stated(KEY, VALUE.replace(from, to).as_bytes()).unwrap_err();
        assert!(wrong("\"v\":1", "\"v\":2").contains("version"));
        assert!(wrong("\"offset\":12", "\"offset\":-1").contains("fields"));
        assert!(wrong("\"run\":\"r\"", "\"run\":3").contains("fields"));
        assert!(stated(b"x", VALUE.as_bytes()).unwrap_err().contains("key"));
        assert!(stated(KEY, b"").unwrap_err().contains("value"));
        assert!(matches!(
            stated(br#"{"lane":1}"#, VALUE.as_bytes()),
            Ok(Stated::Claim)
        ));
    }

    #[test]
    fn what_is_no_chunk_says_why() {
        assert!(chunk(KEY, b"\x01").unwrap_err().contains("key"));
        let key = br#"{"topic":"t","partition":3,"topic_id":"a","first":5}"#;
        assert!(chunk(key, b"\x01").is_err());
    }

    #[test]
    fn a_merged_chunk_claims_nothing_and_must_be_readable() {
        let key = br#"{"topic":"t","partition":3,"topic_id":"a","first":5,"merged":2}"#;
        let map = OffsetMap::from_ranges(&[Range {
            source: 5,
            target: 9,
            count: 2,
        }]);
        let value = map.unwrap().encode("east.t", 3).unwrap();
        assert!(chunk(key, &value).unwrap().is_none());
        assert!(chunk(key, &value[1..]).is_err());
    }

    #[test]
    fn input_that_is_not_one_object_is_refused() {
        for bad in [
            "",
            "{",
            "{}x",
            "[1]",
            "3",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            r#"{"a":+1}"#,
            r#"{"a":"\ud800"}"#,
            r#"{"a":"\q"}"#,
            "{a:1}",
        ] {
            assert!(Fields::read(bad.as_bytes()).is_none(), "{bad}");
        }
    }

    #[test]
    fn the_depth_of_values_is_limited() {
        let deep = |depth| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(Fields::read(deep(32).as_bytes()).is_some());
        assert!(Fields::read(deep(100_000).as_bytes()).is_none());
        let objects = format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
        assert!(Fields::read(objects.as_bytes()).is_none());
    }

    #[test]
    fn numbers_beyond_64_bits_and_fractions_are_no_numbers() {
        for (text, expected) in [
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("18446744073709551616", None),
            ("1.0", None),
            ("1e3", None),
        ] {
            let fields = Fields::read(format!("{{\"a\":{text}}}").as_bytes()).unwrap();
            assert_eq!(fields.number("a"), expected, "{text}");
        }
    }

    #[test]
    fn the_last_value_of_a_repeated_name_counts() {
        let fields = Fields::read(br#"{"a":"x","a":1}"#).unwrap();
        assert_eq!((fields.number("a"), fields.text("a")), (Some(1), None));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Fields::read(&bytes);
        }

        #[test]
        fn a_text_survives(text in "[a-zA-Z0-9\"\\\\\n\u{e4}\u{1f600}]{0,20}") {
            let quoted: String = text.chars().map(|letter| match letter {
                '"' => "\\\"".to_owned(),
                '\\' => "\\\\".to_owned(),
                '\n' => "\\u000a".to_owned(),
                '\u{1f600}' => "\\ud83d\\ude00".to_owned(),
                other => other.to_string(),
            }).collect();
            let fields = Fields::read(format!("{{\"k\":\"{quoted}\"}}").as_bytes()).unwrap();
            prop_assert_eq!(fields.text("k"), Some(text.as_str()));
        }
    }
}

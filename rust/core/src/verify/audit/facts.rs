//! Decodes the records of the state topics, as far as the audit needs them.
//!
//! The formats are those of `eomirror.records.position` and `eomirror.records.offset_map` in Python, and of
//! [`crate::offset_map`]. A value of another version is rejected.

use std::borrow::Cow;
use std::sync::Arc;

use super::json::{Value, object};
use super::report::{Producer, TransactionName};
use crate::offset_map::{self, Range};

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
    let key = Fields(object(key).ok_or("its key is not a JSON object")?);
    let body = Fields(object(value).ok_or("its value is not a JSON object")?);
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
    let key = Fields(object(key).ok_or("its key is not a JSON object")?);
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

fn position(key: &Fields<'_>, body: &Fields<'_>) -> Option<Position> {
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

struct Fields<'a>(Vec<(Cow<'a, str>, Value<'a>)>);

impl Fields<'_> {
    fn get(&self, name: &str) -> Option<&Value<'_>> {
        let (_, value) = self.0.iter().rev().find(|(key, _)| key == name)?;
        Some(value)
    }

    fn number(&self, name: &str) -> Option<i64> {
        match self.get(name)? {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    fn partition(&self, name: &str) -> Option<i32> {
        i32::try_from(self.number(name)?)
            .ok()
            .filter(|partition| *partition >= 0)
    }

    /// Returns a number or null; `None` for anything else.
    #[allow(clippy::option_option)] // absent and null are not the same here
    fn optional(&self, name: &str) -> Option<Option<i64>> {
        match self.get(name)? {
            Value::Number(number) => Some(Some(*number)),
            Value::Null => Some(None),
            _ => None,
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Stated, chunk, stated};
    use crate::offset_map::{OffsetMap, Range};

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
}

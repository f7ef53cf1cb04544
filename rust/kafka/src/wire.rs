//! The primitive types of Kafka's wire protocol: a reader with bounds, and a writer.
//!
//! Source: <https://kafka.apache.org/protocol#protocol_types>, KIP-482 for compact types and tagged fields.
//!
//! No crate is used, because the generated decoders of `kafka-protocol` 0.18 reserve memory for as many elements as a
//! length field claims before they read one: 8 wrong bytes end the process. A program that reads from a broker,
//! perhaps through proxies, must survive them. The crate is the independent encoder of our tests.

use crate::error_code::ErrorCode;
use bytes::Bytes;

use crate::topic::TopicId;

/// Bytes that violate the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DecodeError {
    /// The violation.
    pub(crate) reason: &'static str,
}

type Read<T> = Result<T, DecodeError>;

const fn broken<T>(reason: &'static str) -> Read<T> {
    Err(DecodeError { reason })
}

/// Reads a frame. [`Bytes`] that it returns share the frame's memory.
#[derive(Debug, Clone)]
pub(crate) struct Reader {
    bytes: Bytes,
    throttle_ms: i32,
}

impl Reader {
    pub(crate) const fn new(bytes: Bytes) -> Self {
        Self {
            bytes,
            throttle_ms: 0,
        }
    }

    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the unread bytes.
    pub(crate) fn rest(self) -> Bytes {
        self.bytes
    }

    /// Checks that no bytes are left: an answer that was read by the wrong schema seldom ends where it should.
    pub(crate) fn finish(self) -> Read<()> {
        if self.bytes.is_empty() {
            Ok(())
        } else {
            broken("bytes are left over")
        }
    }

    fn take(&mut self, count: usize) -> Read<Bytes> {
        if count > self.bytes.len() {
            return broken("it ends too early");
        }
        Ok(self.bytes.split_to(count))
    }

    fn fixed<const N: usize>(&mut self) -> Read<[u8; N]> {
        let Some(head) = self.bytes.first_chunk::<N>() else {
            return broken("it ends too early");
        };
        let head = *head;
        bytes::Buf::advance(&mut self.bytes, N);
        Ok(head)
    }

    pub(crate) fn bool(&mut self) -> Read<bool> {
        Ok(self.fixed::<1>()?[0] != 0)
    }

    pub(crate) fn int16(&mut self) -> Read<i16> {
        self.fixed().map(i16::from_be_bytes)
    }

    pub(crate) fn error_code(&mut self) -> Read<ErrorCode> {
        self.int16().map(ErrorCode)
    }

    pub(crate) fn int32(&mut self) -> Read<i32> {
        self.fixed().map(i32::from_be_bytes)
    }

    pub(crate) fn int64(&mut self) -> Read<i64> {
        self.fixed().map(i64::from_be_bytes)
    }

    /// Reads the pause in ms that the broker requests (KIP-219), and keeps it for [`Self::throttle_ms`].
    pub(crate) fn throttle(&mut self) -> Read<i32> {
        self.throttle_ms = self.int32()?;
        Ok(self.throttle_ms)
    }

    /// Returns the pause in ms that was read; 0 for none.
    pub(crate) const fn throttle_ms(&self) -> i32 {
        self.throttle_ms
    }

    pub(crate) fn topic_id(&mut self) -> Read<TopicId> {
        self.fixed().map(TopicId)
    }

    pub(crate) fn varint(&mut self) -> Read<u32> {
        let mut value = 0_u32;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.fixed()?;
            let low = u32::from(byte & 0x7f);
            if shift == 28 && low > 0x0f {
                return broken("a length does not fit 32 bits");
            }
            value |= low << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        broken("a length does not fit 32 bits")
    }

    /// Reads the length of a compact string, array or byte field; None for null.
    fn compact_length(&mut self) -> Read<Option<usize>> {
        let length = self.varint()?;
        match length.checked_sub(1) {
            None => Ok(None),
            Some(length) => match usize::try_from(length) {
                Ok(length) => Ok(Some(length)),
                Err(_) => broken("a length does not fit this machine"),
            },
        }
    }

    fn text(&mut self, length: usize) -> Read<String> {
        let bytes = self.take(length)?;
        match std::str::from_utf8(&bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => broken("a string is not UTF-8"),
        }
    }

    pub(crate) fn nullable_compact_string(&mut self) -> Read<Option<String>> {
        match self.compact_length()? {
            None => Ok(None),
            Some(length) => self.text(length).map(Some),
        }
    }

    pub(crate) fn compact_string(&mut self) -> Read<String> {
        match self.nullable_compact_string()? {
            Some(text) => Ok(text),
            None => broken("a string is null"),
        }
    }

    pub(crate) fn nullable_string(&mut self) -> Read<Option<String>> {
        match self.int16()? {
            -1 => Ok(None),
            length => match usize::try_from(length) {
                Ok(length) => self.text(length).map(Some),
                Err(_) => broken("a length is negative"),
            },
        }
    }

    pub(crate) fn string(&mut self) -> Read<String> {
        match self.nullable_string()? {
            Some(text) => Ok(text),
            None => broken("a string is null"),
        }
    }

    pub(crate) fn nullable_compact_bytes(&mut self) -> Read<Option<Bytes>> {
        match self.compact_length()? {
            None => Ok(None),
            Some(length) => self.take(length).map(Some),
        }
    }

    pub(crate) fn bytes(&mut self) -> Read<Bytes> {
        let length = self.int32()?;
        match usize::try_from(length) {
            Ok(length) => self.take(length),
            Err(_) => broken("a length is negative"),
        }
    }

    /// Reads an array whose items take at least `smallest` bytes each on the wire. A length that exceeds the frame is
    /// refused. Memory beyond the frame's size is reserved only for items that were read.
    pub(crate) fn nullable_compact_array<T>(
        &mut self,
        smallest: usize,
        item: impl FnMut(&mut Self) -> Read<T>,
    ) -> Read<Option<Vec<T>>> {
        match self.compact_length()? {
            None => Ok(None),
            Some(length) => self.items(length, smallest, item).map(Some),
        }
    }

    pub(crate) fn compact_array<T>(
        &mut self,
        smallest: usize,
        item: impl FnMut(&mut Self) -> Read<T>,
    ) -> Read<Vec<T>> {
        match self.nullable_compact_array(smallest, item)? {
            Some(items) => Ok(items),
            None => broken("an array is null"),
        }
    }

    /// Reads an array of structures: each ends with tagged fields, which are skipped.
    pub(crate) fn structures<T>(
        &mut self,
        smallest: usize,
        mut item: impl FnMut(&mut Self) -> Read<T>,
    ) -> Read<Vec<T>> {
        self.compact_array(smallest, |from| {
            let read = item(from)?;
            from.skip_tags()?;
            Ok(read)
        })
    }

    /// Reads topics with their partitions, and returns the partitions. `item` gets the topic's name.
    pub(crate) fn partitions<T>(
        &mut self,
        smallest: usize,
        mut item: impl FnMut(&mut Self, &str) -> Read<T>,
    ) -> Read<Vec<T>> {
        let topics = self.structures(3, |from| {
            let topic = from.compact_string()?;
            from.structures(smallest, |from| item(from, &topic))
        })?;
        Ok(topics.into_iter().flatten().collect())
    }

    pub(crate) fn array<T>(
        &mut self,
        smallest: usize,
        item: impl FnMut(&mut Self) -> Read<T>,
    ) -> Read<Vec<T>> {
        let length = self.int32()?;
        match usize::try_from(length) {
            Ok(length) => self.items(length, smallest, item),
            Err(_) => broken("a length is negative"),
        }
    }

    fn items<T>(
        &mut self,
        length: usize,
        smallest: usize,
        mut item: impl FnMut(&mut Self) -> Read<T>,
    ) -> Read<Vec<T>> {
        if length > self.remaining() / smallest.max(1) {
            return broken("an array is longer than what holds it");
        }
        let mut items = Vec::with_capacity(length.min(self.affordable::<T>()));
        for _ in 0..length {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// Returns the number of items that take as much memory as the unread bytes. An item can be much larger in memory
    /// than on the wire, so the length field must not decide how much is reserved.
    fn affordable<T>(&self) -> usize {
        self.remaining() / size_of::<T>().max(1)
    }

    /// Reads tagged fields. `field` gets each tag with a reader of its bytes, and may leave unknown ones unread.
    pub(crate) fn tags(&mut self, mut field: impl FnMut(u32, &mut Self) -> Read<()>) -> Read<()> {
        let count = self.varint()?;
        for _ in 0..count {
            let tag = self.varint()?;
            let size = self.varint()?;
            let Ok(size) = usize::try_from(size) else {
                return broken("a length does not fit this machine");
            };
            let mut inner = Self::new(self.take(size)?);
            field(tag, &mut inner)?;
        }
        Ok(())
    }

    pub(crate) fn skip_tags(&mut self) -> Read<()> {
        self.tags(|_, _| Ok(()))
    }
}

/// Bytes from this size on are sent without a copy. Below, a copy costs less than one more piece.
const WORTH_A_PIECE: usize = 4096;

/// Writes a frame in pieces: large bytes are not copied.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    /// The pieces before `bytes`.
    pieces: Vec<Bytes>,
    bytes: Vec<u8>,
}

impl Writer {
    /// Returns the whole frame, with its length. Requests are small: one over 2 GiB is a bug.
    pub(crate) fn into_frame(mut self) -> Vec<Bytes> {
        self.cut();
        let size: usize = self.pieces.iter().map(Bytes::len).sum();
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        self.pieces
            .insert(0, Bytes::copy_from_slice(&size.to_be_bytes()));
        self.pieces
    }

    #[cfg(test)]
    pub(crate) fn into_bytes(mut self) -> Bytes {
        self.cut();
        self.pieces.concat().into()
    }

    fn cut(&mut self) {
        if !self.bytes.is_empty() {
            self.pieces.push(std::mem::take(&mut self.bytes).into());
        }
    }

    pub(crate) fn int8(&mut self, value: i8) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.bytes.push(u8::from(value));
    }

    pub(crate) fn int16(&mut self, value: i16) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn int32(&mut self, value: i32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn int64(&mut self, value: i64) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn topic_id(&mut self, id: TopicId) {
        self.bytes.extend_from_slice(&id.0);
    }

    pub(crate) fn varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.bytes.push(low_bits(value) | 0x80);
            value >>= 7;
        }
        self.bytes.push(low_bits(value));
    }

    fn compact_length(&mut self, length: usize) {
        self.varint(u32::try_from(length).unwrap_or(u32::MAX - 1) + 1);
    }

    pub(crate) fn compact_string(&mut self, text: &str) {
        self.compact_length(text.len());
        self.bytes.extend_from_slice(text.as_bytes());
    }

    pub(crate) fn nullable_compact_string(&mut self, text: Option<&str>) {
        match text {
            Some(text) => self.compact_string(text),
            None => self.varint(0),
        }
    }

    pub(crate) fn string(&mut self, text: &str) {
        self.int16(i16::try_from(text.len()).unwrap_or(i16::MAX));
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// Writes compact bytes from two slices.
    pub(crate) fn compact_pieces(&mut self, head: &[u8], body: &Bytes) {
        self.compact_length(head.len() + body.len());
        self.bytes.extend_from_slice(head);
        if body.len() < WORTH_A_PIECE {
            self.bytes.extend_from_slice(body);
        } else {
            self.cut();
            self.pieces.push(body.clone());
        }
    }

    pub(crate) fn compact_bytes(&mut self, bytes: &[u8]) {
        self.compact_length(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.int32(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn compact_array<T>(&mut self, items: &[T], mut item: impl FnMut(&mut Self, &T)) {
        self.compact_length(items.len());
        for each in items {
            item(self, each);
        }
    }

    /// Writes an array of structures, which end with tagged fields.
    pub(crate) fn structures<T>(&mut self, items: &[T], mut item: impl FnMut(&mut Self, &T)) {
        self.compact_array(items, |out, each| {
            item(out, each);
            out.no_tags();
        });
    }

    /// Writes the names of topics with the numbers of their partitions.
    pub(crate) fn partitions(&mut self, topics: &[(String, Vec<i32>)]) {
        self.structures(topics, |out, (name, partitions)| {
            out.compact_string(name);
            out.compact_array(partitions, |out, partition| out.int32(*partition));
        });
    }

    pub(crate) fn no_tags(&mut self) {
        self.bytes.push(0);
    }
}

fn low_bits(value: u32) -> u8 {
    (value & 0x7f) as u8
}

#[cfg(test)]
mod tests {
    use super::{Reader, Writer};
    use bytes::Bytes;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_varint_is_read_as_it_was_written(value: u32) {
            let mut writer = Writer::default();
            writer.varint(value);
            let mut reader = Reader::new(writer.into_bytes());
            prop_assert_eq!(reader.varint().unwrap(), value);
            prop_assert!(reader.finish().is_ok());
        }

        #[test]
        fn a_string_is_read_as_it_was_written(text in ".{0,300}") {
            let mut writer = Writer::default();
            writer.compact_string(&text);
            writer.string(&text);
            let mut reader = Reader::new(writer.into_bytes());
            prop_assert_eq!(&reader.compact_string().unwrap(), &text);
            prop_assert_eq!(&reader.string().unwrap(), &text);
        }
    }

    #[test]
    fn an_array_cannot_claim_more_than_its_frame_holds() {
        let mut reader = Reader::new(Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0]));
        let read = reader.compact_array(1, Reader::bool);
        assert_eq!(
            read.unwrap_err().reason,
            "an array is longer than what holds it"
        );
    }

    #[test]
    fn a_length_reserves_at_most_the_memory_of_the_bytes_left() {
        type Large = [u64; 8];
        let reader = Reader::new(Bytes::from(vec![0; 3000]));
        assert_eq!(reader.affordable::<Large>(), 3000 / 64);
        assert_eq!(reader.affordable::<()>(), 3000);
        // 1,000 items of 3 bytes are claimed, and the second is missing
        let mut claims = Writer::default();
        claims.compact_length(1000);
        claims.bytes.extend([0; 3000]);
        let mut reader = Reader::new(claims.into_bytes());
        let mut first = true;
        let items = reader.compact_array(3, |from| {
            from.take(if std::mem::take(&mut first) { 3 } else { 4000 })?;
            Ok(Large::default())
        });
        assert_eq!(items.unwrap_err().reason, "it ends too early");
    }

    #[test]
    fn a_varint_of_six_bytes_is_refused() {
        let mut reader = Reader::new(Bytes::from_static(&[0x80, 0x80, 0x80, 0x80, 0x80, 0]));
        assert_eq!(
            reader.varint().unwrap_err().reason,
            "a length does not fit 32 bits"
        );
        let mut reader = Reader::new(Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 0x1f]));
        assert_eq!(
            reader.varint().unwrap_err().reason,
            "a length does not fit 32 bits"
        );
    }

    #[test]
    fn unknown_tags_are_skipped_whole() {
        let mut writer = Writer::default();
        writer.varint(2);
        for tag in [7, 9] {
            writer.varint(tag);
            writer.varint(3);
            writer.int16(1);
            writer.bool(true);
        }
        writer.int16(42);
        let mut reader = Reader::new(writer.into_bytes());
        reader.skip_tags().unwrap();
        assert_eq!(reader.int16().unwrap(), 42);
    }
}

//! Responses of brokers that mutations start from, written by hand after Kafka's schemas.

use std::ops::RangeInclusive;

/// Returns a version within the range.
pub(crate) fn version(choice: u64, range: RangeInclusive<i16>) -> i16 {
    let count = u64::try_from(range.end() - range.start() + 1).unwrap_or(1);
    range.start() + i16::try_from(choice % count).unwrap_or(0)
}

#[derive(Default)]
struct Body(Vec<u8>);

impl Body {
    fn int8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    fn int16(mut self, value: i16) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn int32(mut self, value: i32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn int64(mut self, value: i64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    /// Writes the length of a compact array or string; short ones only.
    fn count(self, count: u8) -> Self {
        self.int8(count + 1)
    }

    fn text(mut self, text: &str) -> Self {
        self = self.count(u8::try_from(text.len()).unwrap_or(0));
        self.0.extend(text.as_bytes());
        self
    }

    fn id(mut self) -> Self {
        self.0.extend([7; 16]);
        self
    }

    fn no_tags(self) -> Self {
        self.int8(0)
    }
}

/// Fetch responses by name and by id: records, an aborted transaction, a diverging epoch, a new leader, a preferred
/// replica.
pub(crate) fn fetch_answers() -> Vec<Vec<u8>> {
    let answer = |by_id: bool| {
        let mut body = Body::default().int32(5).int16(0).int32(99).count(1);
        body = if by_id {
            body.id()
        } else {
            body.text("orders")
        };
        body = body.count(2);
        // partition 0: an aborted transaction and records
        body = body.int32(0).int16(0).int64(30).int64(20).int64(0);
        body = body.count(1).int64(4711).int64(12).no_tags();
        body = body.int32(-1).text("no records, but bytes").no_tags();
        // partition 1: moved, with both tagged structures
        body = body.int32(1).int16(6).int64(30).int64(20).int64(0);
        body = body.int8(0).int32(2).int8(1).int8(2);
        body = body.int8(0).int8(13).int32(3).int64(9).no_tags();
        body = body.int8(1).int8(9).int32(2).int32(8).no_tags();
        body.no_tags().no_tags().0
    };
    let silent = Body::default().int32(0).int16(70).int32(0).count(0);
    vec![answer(false), answer(true), silent.no_tags().0]
}

/// A Metadata response: two brokers, and a topic with one partition.
pub(crate) fn metadata_answers() -> Vec<Vec<u8>> {
    let answer = |version: i16| {
        let mut body = Body::default().int32(0).count(2);
        for id in [1, 2] {
            body = body.int32(id).text("broker.example").int32(9092);
            body = body.text("rack").no_tags();
        }
        body = body.text("a-cluster").int32(1).count(1);
        body = body.int16(0).text("orders").id().int8(0).count(1);
        body = body.int16(0).int32(0).int32(1).int32(7);
        body = body.count(2).int32(1).int32(2).count(1).int32(1).count(0);
        body = body.no_tags().int32(0).no_tags();
        body = match version {
            10 => body.int32(0),
            13 => body.int16(0),
            _ => body,
        };
        body.no_tags().0
    };
    [10, 11, 13].map(answer).to_vec()
}

/// Frames of whole handshakes: an accepted token, a rejected one, and the beginning of SCRAM.
pub(crate) fn handshakes() -> Vec<Vec<u8>> {
    let versions = {
        let body = Body::default().int32(0).int16(0).count(3);
        [(17, 0, 1), (18, 0, 4), (36, 0, 2)]
            .into_iter()
            .fold(body, |body, (key, low, high)| {
                body.int16(key).int16(low).int16(high).no_tags()
            })
            .int32(0)
            .no_tags()
            .0
    };
    let mechanism = Body::default().int32(1).int16(0).int32(0).0;
    let said = |correlation: i32, error: i16, message: &str| {
        let body = Body::default().int32(correlation).no_tags().int16(error);
        body.int8(0).text(message).int64(60_000).no_tags().0
    };
    let frames = |last: &[Vec<u8>]| {
        let mut all = Vec::new();
        for frame in [&versions, &mechanism].into_iter().chain(last) {
            all.extend(u32::try_from(frame.len()).unwrap_or(0).to_be_bytes());
            all.extend(frame);
        }
        all
    };
    let refused = said(2, 0, r#"{"status":"invalid_token"}"#);
    let challenge = said(
        2,
        0,
        "r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    );
    vec![
        frames(&[said(2, 0, "")]),
        frames(&[refused, said(3, 58, "")]),
        frames(&[
            challenge,
            said(3, 0, "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="),
        ]),
    ]
}

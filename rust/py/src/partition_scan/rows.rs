//! Rows as the buffers of Arrow arrays, in the byte order of the machine's Arrow library: little-endian.

use eomirror_batch::{Record, TimestampType};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Validity bitmap (None without nulls), offsets, data, and number of nulls.
type BinaryTuple<'py> = (
    Option<Bound<'py, PyBytes>>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    usize,
);

/// Validity bitmap, offsets and number of nulls of the lists; number of headers; their keys and values.
type HeadersTuple<'py> = (
    Option<Bound<'py, PyBytes>>,
    Bound<'py, PyBytes>,
    usize,
    usize,
    BinaryTuple<'py>,
    BinaryTuple<'py>,
);

/// Number of rows, keys, values, offsets, timestamps in microseconds, types of timestamps, headers.
pub(super) type RowsTuple<'py> = (
    usize,
    BinaryTuple<'py>,
    BinaryTuple<'py>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Option<HeadersTuple<'py>>,
);

/// Rows that were read and not taken.
pub(super) struct Rows {
    len: usize,
    keys: Binary,
    values: Binary,
    offsets: Vec<u8>,
    timestamps: Vec<u8>,
    kinds: Vec<u8>,
    headers: Option<Headers>,
}

impl Rows {
    /// Returns no rows; `headers` adds the column of headers.
    pub(super) fn new(headers: bool) -> Self {
        Self {
            len: 0,
            keys: Binary::new(),
            values: Binary::new(),
            offsets: Vec::new(),
            timestamps: Vec::new(),
            kinds: Vec::new(),
            headers: headers.then(Headers::new),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the size of all values.
    pub(super) fn bytes(&self) -> usize {
        let headers = self.headers.as_ref().map_or(0, |headers| {
            headers.keys.data.len() + headers.values.data.len()
        });
        self.keys.data.len() + self.values.data.len() + headers
    }

    /// Adds a record under `offset`.
    pub(super) fn push(&mut self, record: &Record<'_>, offset: i64, kind: TimestampType) {
        self.len += 1;
        self.keys.push(record.key);
        self.values.push(record.value);
        self.offsets.extend_from_slice(&offset.to_le_bytes());
        let micros = record.timestamp.saturating_mul(1000);
        self.timestamps.extend_from_slice(&micros.to_le_bytes());
        // the numbers of Kafka's TimestampType
        let kind: i32 = match kind {
            TimestampType::CreateTime => 0,
            TimestampType::LogAppendTime => 1,
        };
        self.kinds.extend_from_slice(&kind.to_le_bytes());
        if let Some(headers) = &mut self.headers {
            headers.push(record);
        }
    }

    /// Returns the rows and begins anew; None for no rows.
    pub(super) fn take<'py>(&mut self, py: Python<'py>) -> Option<RowsTuple<'py>> {
        if self.len == 0 {
            return None;
        }
        let taken = (
            self.len,
            self.keys.take(py),
            self.values.take(py),
            PyBytes::new(py, &self.offsets),
            PyBytes::new(py, &self.timestamps),
            PyBytes::new(py, &self.kinds),
            self.headers.as_mut().map(|headers| headers.take(py)),
        );
        self.len = 0;
        self.offsets.clear();
        self.timestamps.clear();
        self.kinds.clear();
        Some(taken)
    }
}

/// A validity bitmap.
#[derive(Default)]
struct Validity {
    bits: Vec<u8>,
    len: usize,
    nulls: usize,
}

impl Validity {
    fn push(&mut self, valid: bool) {
        let bit = self.len % 8;
        if bit == 0 {
            self.bits.push(0);
        }
        if let (true, Some(last)) = (valid, self.bits.last_mut()) {
            *last |= 1 << bit;
        }
        self.len += 1;
        self.nulls += usize::from(!valid);
    }

    fn take<'py>(&mut self, py: Python<'py>) -> (Option<Bound<'py, PyBytes>>, usize) {
        let nulls = self.nulls;
        let bits = (nulls > 0).then(|| PyBytes::new(py, &self.bits));
        self.bits.clear();
        self.len = 0;
        self.nulls = 0;
        (bits, nulls)
    }
}

/// Byte strings or nulls.
struct Binary {
    validity: Validity,
    /// Ends as 32-bit integers, behind a zero.
    offsets: Vec<u8>,
    data: Vec<u8>,
}

impl Binary {
    fn new() -> Self {
        Self {
            validity: Validity::default(),
            offsets: vec![0; 4],
            data: Vec::new(),
        }
    }

    fn push(&mut self, value: Option<&[u8]>) {
        self.validity.push(value.is_some());
        self.data.extend_from_slice(value.unwrap_or_default());
        push_end(&mut self.offsets, self.data.len());
    }

    fn take<'py>(&mut self, py: Python<'py>) -> BinaryTuple<'py> {
        let (validity, nulls) = self.validity.take(py);
        let taken = (
            validity,
            PyBytes::new(py, &self.offsets),
            PyBytes::new(py, &self.data),
            nulls,
        );
        self.offsets.truncate(4);
        self.data.clear();
        taken
    }
}

/// Lists of headers; null for a record without headers, as Spark's Kafka connector shows it.
struct Headers {
    validity: Validity,
    offsets: Vec<u8>,
    count: usize,
    keys: Binary,
    values: Binary,
}

impl Headers {
    fn new() -> Self {
        Self {
            validity: Validity::default(),
            offsets: vec![0; 4],
            count: 0,
            keys: Binary::new(),
            values: Binary::new(),
        }
    }

    fn push(&mut self, record: &Record<'_>) {
        self.validity.push(record.headers.len() > 0);
        for header in record.headers.clone() {
            self.count += 1;
            // as Java's client reads a key that is not UTF-8
            let key = String::from_utf8_lossy(header.key);
            self.keys.push(Some(key.as_bytes()));
            self.values.push(header.value);
        }
        push_end(&mut self.offsets, self.count);
    }

    fn take<'py>(&mut self, py: Python<'py>) -> HeadersTuple<'py> {
        let (validity, nulls) = self.validity.take(py);
        let taken = (
            validity,
            PyBytes::new(py, &self.offsets),
            nulls,
            self.count,
            self.keys.take(py),
            self.values.take(py),
        );
        self.offsets.truncate(4);
        self.count = 0;
        taken
    }
}

/// Appends the end of a value. `MOST_BYTES` and the largest size of a batch keep ends within 31 bits.
fn push_end(offsets: &mut Vec<u8>, end: usize) {
    let end = i32::try_from(end).unwrap_or(i32::MAX);
    offsets.extend_from_slice(&end.to_le_bytes());
}

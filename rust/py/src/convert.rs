//! The only reader of Python message objects.
//!
//! A message has nine fields to read and a batch ten thousand messages. One call from Rust per field and message costs
//! more than all decisions together. So each field is read for the whole batch in one call: `list(map(Message.offset,
//! messages))` stays inside the interpreter's C loop.

use eomirror_core::{HeaderRef, RecordRef, Written, error::place};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple, PyType};

use crate::error::unrepresentable;

/// `confluent_kafka.TIMESTAMP_NOT_AVAILABLE`
const TIMESTAMP_NOT_AVAILABLE: i32 = 0;

/// `confluent_kafka.TIMESTAMP_CREATE_TIME`
const TIMESTAMP_CREATE_TIME: i32 = 1;

/// Bytes or None. The object itself is passed to the target's producer, so nothing is copied.
pub(crate) struct Payload<'py>(Option<Bound<'py, PyBytes>>);

impl<'py> Payload<'py> {
    fn read(object: Bound<'py, PyAny>) -> Option<Self> {
        if object.is_none() {
            return Some(Self(None));
        }
        object
            .cast_into::<PyBytes>()
            .ok()
            .map(|bytes| Self(Some(bytes)))
    }

    fn bytes(&self) -> Option<&[u8]> {
        self.0.as_ref().map(PyBytesMethods::as_bytes)
    }

    /// Returns the object of what `edit` makes of the bytes, or None.
    pub(crate) fn edited<'a>(
        &'a self,
        py: Python<'py>,
        edit: impl FnOnce(Option<&'a [u8]>) -> Option<&'a [u8]>,
    ) -> Bound<'py, PyAny> {
        let before = self.bytes();
        match (edit(before), &self.0) {
            (None, _) => py.None().into_bound(py),
            (Some(bytes), Some(object)) if before.is_some_and(|old| std::ptr::eq(old, bytes)) => {
                object.as_any().clone()
            }
            (Some(bytes), _) => PyBytes::new(py, bytes).into_any(),
        }
    }
}

/// One header as objects; `original` is the message's own pair.
pub(crate) struct Header<'py> {
    pub(crate) key: Bound<'py, PyString>,
    pub(crate) original: Bound<'py, PyAny>,
    value: Payload<'py>,
}

/// The fields of one message.
pub(crate) struct Row<'py> {
    pub(crate) partition: Bound<'py, PyAny>,
    pub(crate) timestamp: Bound<'py, PyAny>,
    pub(crate) key: Payload<'py>,
    pub(crate) value: Payload<'py>,
    /// The message's own list, or None.
    pub(crate) headers: Bound<'py, PyAny>,
    pub(crate) first_header: usize,
    pub(crate) end_header: usize,
    topic: Bound<'py, PyString>,
    pub(crate) partition_number: i32,
    pub(crate) offset: i64,
    leader_epoch: i32,
    milliseconds: i64,
    /// librdkafka does not report producer ids.
    written: Written,
}

/// The fields of a batch of messages without errors.
#[derive(Default)]
pub(crate) struct Batch<'py> {
    pub(crate) rows: Vec<Row<'py>>,
    pub(crate) headers: Vec<Header<'py>>,
}

impl<'py> Batch<'py> {
    /// Reads messages, none of which may carry an error.
    pub(crate) fn read(messages: &Bound<'py, PyList>) -> PyResult<Self> {
        let py = messages.py();
        let reader = ColumnReader::new(messages)?;
        let topics = reader.column("topic")?;
        let partitions = reader.column("partition")?;
        let offsets = reader.column("offset")?;
        let keys = reader.column("key")?;
        let values = reader.column("value")?;
        let timestamps = reader.column("timestamp")?;
        let epochs = reader.column("leader_epoch")?;
        let headers = reader
            .column("headers")
            .or_else(|error| Err(explain_headers(messages, error)?))?;
        let not_available = (-1_i64).into_pyobject(py)?.into_any();
        let mut batch = Self {
            rows: Vec::with_capacity(topics.len()),
            headers: Vec::new(),
        };
        for index in 0..topics.len() {
            let topic = topics.get_item(index)?.cast_into::<PyString>()?;
            let partition = partitions.get_item(index)?;
            let partition_number: i32 = partition.extract()?;
            let offset: i64 = offsets.get_item(index)?.extract()?;
            let wrong = |what: &str| {
                let at = place(topic.to_str().unwrap_or("?"), partition_number, offset);
                PyTypeError::new_err(format!(
                    "{at}: {what} of the message has an unexpected type"
                ))
            };
            let stamp = timestamps.get_item(index)?;
            let stamp = stamp.cast::<PyTuple>().map_err(|_| wrong("timestamp"))?;
            let mut timestamp = stamp.get_item(1)?;
            let mut milliseconds: i64 = timestamp.extract()?;
            let mut written = Written::Unknown;
            match stamp.get_borrowed_item(0)?.extract()? {
                TIMESTAMP_NOT_AVAILABLE => {
                    timestamp = not_available.clone();
                    milliseconds = -1;
                }
                TIMESTAMP_CREATE_TIME => written = Written::At(milliseconds),
                _ => {}
            }
            let epoch = epochs.get_item(index)?;
            let headers = headers.get_item(index)?;
            let first_header = batch.headers.len();
            if !headers.is_none() {
                let list = headers.cast::<PyList>().map_err(|_| wrong("headers"))?;
                for pair in list {
                    batch
                        .headers
                        .push(Header::read(pair).ok_or_else(|| wrong("a header"))?);
                }
            }
            batch.rows.push(Row {
                partition,
                timestamp,
                key: Payload::read(keys.get_item(index)?).ok_or_else(|| wrong("key"))?,
                value: Payload::read(values.get_item(index)?).ok_or_else(|| wrong("value"))?,
                headers,
                first_header,
                end_header: batch.headers.len(),
                leader_epoch: if epoch.is_none() {
                    -1
                } else {
                    epoch.extract()?
                },
                topic,
                partition_number,
                offset,
                milliseconds,
                written,
            });
        }
        Ok(batch)
    }

    /// Returns the headers as the core takes them.
    pub(crate) fn header_refs(&self) -> PyResult<Vec<HeaderRef<'_>>> {
        self.headers
            .iter()
            .map(|header| {
                Ok(HeaderRef {
                    key: header.key.to_str()?.as_bytes(),
                    value: header.value.bytes(),
                })
            })
            .collect()
    }

    /// Returns the records as the core takes them; `headers` are the result of [`Batch::header_refs`].
    pub(crate) fn record_refs<'a>(
        &'a self,
        headers: &'a [HeaderRef<'a>],
    ) -> PyResult<Vec<RecordRef<'a>>> {
        self.rows
            .iter()
            .map(|row| {
                Ok(RecordRef {
                    topic: row.topic.to_str()?,
                    partition: row.partition_number,
                    offset: row.offset,
                    leader_epoch: row.leader_epoch,
                    timestamp: row.milliseconds,
                    key: row.key.bytes(),
                    value: row.value.bytes(),
                    headers: &headers[row.first_header..row.end_header],
                    written: row.written,
                })
            })
            .collect()
    }
}

impl<'py> Header<'py> {
    fn read(pair: Bound<'py, PyAny>) -> Option<Self> {
        let tuple = pair.cast::<PyTuple>().ok()?;
        if tuple.len() != 2 {
            return None;
        }
        let key = tuple.get_item(0).ok()?.cast_into::<PyString>().ok()?;
        let value = Payload::read(tuple.get_item(1).ok()?)?;
        Some(Self {
            key,
            value,
            original: pair,
        })
    }
}

/// Messages sorted by kind.
pub(crate) struct Sorted<'py> {
    /// Messages that are records.
    pub(crate) records: Bound<'py, PyList>,
    /// `_PARTITION_EOF` events as (topic, partition, offset).
    pub(crate) ends: Bound<'py, PyList>,
    /// Index of the first message with any other error: it and all later ones are not sorted.
    pub(crate) error_at: Option<usize>,
}

/// `confluent_kafka.KafkaError._PARTITION_EOF`
const PARTITION_EOF: i64 = -191;

/// Separates events and errors from the records of a batch.
pub(crate) fn sort<'py>(messages: &Bound<'py, PyList>) -> PyResult<Sorted<'py>> {
    let py = messages.py();
    let found = ColumnReader::new(messages)?.column("error")?;
    let mut sorted = Sorted {
        // a copy, so that other code cannot change it meanwhile
        records: messages.get_slice(0, messages.len()),
        ends: PyList::empty(py),
        error_at: None,
    };
    if found.iter().all(|error| error.is_none()) {
        return Ok(sorted);
    }
    let records = PyList::empty(py);
    for (at, (message, error)) in sorted.records.iter().zip(&found).enumerate() {
        if error.is_none() {
            records.append(message)?;
        } else if error.call_method0("code")?.extract::<i64>()? == PARTITION_EOF {
            let get = |name| message.call_method0(name);
            sorted
                .ends
                .append((get("topic")?, get("partition")?, get("offset")?))?;
        } else {
            // librdkafka continues after a batch that it cannot read, so later records must not be mirrored
            sorted.error_at = Some(at);
            break;
        }
    }
    sorted.records = records;
    Ok(sorted)
}

/// Reads one method of all messages in one call.
struct ColumnReader<'a, 'py> {
    messages: &'a Bound<'py, PyList>,
    /// Type of all messages, if they have a common one.
    kind: Option<Bound<'py, PyType>>,
}

impl<'a, 'py> ColumnReader<'a, 'py> {
    fn new(messages: &'a Bound<'py, PyList>) -> PyResult<Self> {
        let kind = match messages.len() {
            0 => None,
            _ => Some(messages.get_item(0)?.get_type()),
        };
        let kind = kind.filter(|kind| {
            messages
                .iter()
                .all(|message| message.get_type_ptr() == kind.as_type_ptr())
        });
        Ok(Self { messages, kind })
    }

    fn column(&self, name: &str) -> PyResult<Bound<'py, PyList>> {
        let py = self.messages.py();
        // the type's method needs no lookup per message; messages of mixed types are looked up one by one
        let method = self.kind.as_ref().and_then(|kind| kind.getattr(name).ok());
        let method = match method {
            Some(method) => method,
            None => builtin(py, &METHODCALLER, "operator", "methodcaller")?.call1((name,))?,
        };
        let values = builtin(py, &MAP, "builtins", "map")?.call1((method, self.messages))?;
        Ok(py
            .get_type::<PyList>()
            .call1((values,))?
            .cast_into::<PyList>()?)
    }
}

static MAP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static METHODCALLER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

fn builtin<'py>(
    py: Python<'py>,
    place: &'static PyOnceLock<Py<PyAny>>,
    module: &str,
    name: &str,
) -> PyResult<Bound<'py, PyAny>> {
    Ok(place
        .get_or_try_init(py, || py.import(module)?.getattr(name).map(Bound::unbind))?
        .bind(py)
        .clone())
}

/// Returns true if every header of a message has a key. After a failure confluent-kafka returns its partially built
/// list, in which the unreadable key is a hole; only inspecting it is safe then.
fn headers_are_whole(message: &Bound<'_, PyAny>) -> bool {
    let Ok(headers) = message.call_method0("headers") else {
        return false;
    };
    let Ok(list) = headers.cast::<PyList>() else {
        return headers.is_none();
    };
    (0..list.len()).all(|index| {
        list.get_item(index)
            .and_then(|header| header.cast_into::<PyTuple>()?.get_item(0))
            .is_ok()
    })
}

/// Names the record whose headers cannot be read: confluent-kafka decodes header keys as UTF-8, and the error of the
/// batch's call does not name the record.
fn explain_headers(messages: &Bound<'_, PyList>, error: PyErr) -> PyResult<PyErr> {
    for message in messages {
        if !headers_are_whole(&message) {
            let topic = message.call_method0("topic")?.extract::<String>()?;
            let at = place(
                &topic,
                message.call_method0("partition")?.extract()?,
                message.call_method0("offset")?.extract()?,
            );
            return Ok(unrepresentable(
                messages.py(),
                &format!(
                    "{at}: the record has a header key that is not UTF-8, which the client plane cannot read"
                ),
                &topic,
                "exclude the topic, or let the application write UTF-8 header keys",
            ));
        }
    }
    Ok(error)
}

//! `PartitionMap`.

use std::sync::{Mutex, MutexGuard, PoisonError};

use eomirror_core::offset_map::{Answer, OffsetMap, Reason, decode};
use pyo3::prelude::*;

use crate::error::raise;

/// Kind of the answer, and the offset in it.
type Translated = (&'static str, i64);

/// The offset map of one source partition and one target partition, built from its chunks.
#[pyclass(frozen, module = "eomirror._core")]
pub(crate) struct PartitionMap {
    map: Mutex<OffsetMap>,
}

impl PartitionMap {
    fn map(&self) -> MutexGuard<'_, OffsetMap> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PartitionMap {
    #[new]
    fn new() -> Self {
        Self {
            map: Mutex::new(OffsetMap::default()),
        }
    }

    fn take_in(&self, py: Python<'_>, value: &[u8], topic: &str, partition: i32) -> PyResult<bool> {
        let chunk = decode(value).map_err(|error| raise(py, &error))?;
        if (chunk.topic.as_str(), chunk.partition) != (topic, partition) {
            return Ok(false);
        }
        self.map()
            .take_in(&chunk.map)
            .map_err(|error| raise(py, &error))?;
        Ok(true)
    }

    fn ranges(&self) -> usize {
        self.map().ranges().len()
    }

    fn keep_near(&self, source: i64, target: i64, most: usize) {
        self.map().keep_near(source, target, most);
    }

    fn listed(&self) -> Vec<(i64, i64, i64)> {
        let map = self.map();
        let ranges = map.ranges().iter();
        ranges
            .map(|range| (range.source, range.target, range.count))
            .collect()
    }

    fn part_to_target(&self, offset: i64) -> Option<Translated> {
        self.map().part_to_target(offset).map(translated)
    }

    fn part_to_source(&self, offset: i64) -> Option<Translated> {
        self.map().part_to_source(offset).map(translated)
    }

    fn to_target(&self, offset: i64, position: i64) -> Translated {
        translated(self.map().answer_to_target(offset, position))
    }

    fn to_source(&self, offset: i64, stable_end: i64) -> Translated {
        translated(self.map().answer_to_source(offset, stable_end))
    }
}

fn translated(answer: Answer) -> Translated {
    match answer {
        Answer::Exact(at) => ("exact", at),
        Answer::Next(at) => ("next", at),
        Answer::Unknown(Reason::Nothing) => ("nothing", -1),
        Answer::Unknown(Reason::Before(first)) => ("before", first),
        Answer::Unknown(Reason::Beyond(end)) => ("beyond", end),
    }
}

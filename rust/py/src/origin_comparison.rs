//! `OriginComparison`.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eomirror_core::origin;
use eomirror_core::verify::by_origin::{ByOrigin, Difference, Kind, Setup};
use eomirror_core::verify::log_digest::{LogDigest, Part};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::convert::Batch;
use crate::transform::Transform;

/// Kind, source offset, target partition, target offset.
type Told = (&'static str, Option<i64>, Option<i32>, Option<i64>);

struct Work {
    comparison: ByOrigin,
    /// Log that is read now: true for the source, partition, digests.
    log: Option<(bool, i32, LogDigest)>,
    records: (u64, u64),
}

/// Compares a source partition with copies that are placed by key.
#[pyclass(frozen, module = "eomirror._core")]
pub(crate) struct OriginComparison {
    timestamps: bool,
    transform: Option<Arc<eomirror_core::transform::Transform>>,
    work: Mutex<Work>,
}

#[pymethods]
impl OriginComparison {
    #[new]
    #[pyo3(signature = (prefix, partition, source, count, *, shortened=HashSet::new(), from_start=true, timestamps=true, most=1_000_000, share=(0, 1), transform=None))]
    #[allow(clippy::too_many_arguments)] // they are keywords in Python
    fn new(
        prefix: String,
        partition: i32,
        source: (i64, i64),
        count: i32,
        shortened: HashSet<i32>,
        from_start: bool,
        timestamps: bool,
        most: usize,
        share: (i64, i64),
        transform: Option<&Transform>,
    ) -> PyResult<Self> {
        if count < 1 || share.1 < 1 {
            return Err(PyValueError::new_err("counts must be positive"));
        }
        let comparison = ByOrigin::new(Setup {
            prefix,
            source: source.0..source.1,
            partition,
            count,
            shortened,
            from_start,
            most,
            share,
        });
        Ok(Self {
            timestamps,
            transform: transform.map(|given| Arc::clone(&given.rules)),
            work: Mutex::new(Work {
                comparison,
                log: None,
                records: (0, 0),
            }),
        })
    }

    fn begin(&self, side: &str, topic: &str, partition: i32, start: i64, end: i64) {
        let mut log = LogDigest::new(topic, start..end, Part::All, self.timestamps);
        log.skip_origins();
        if side == "source" {
            let rules = self.transform.as_ref();
            log.transform_by(rules.and_then(|rules| rules.of_topic(topic)));
        }
        self.lock().log = Some((side == "source", partition, log));
    }

    fn feed(&self, messages: &Bound<'_, PyList>, reached: Option<i64>) -> PyResult<bool> {
        let batch = Batch::read(messages)?;
        let headers = batch.header_refs()?;
        let records = batch.record_refs(&headers)?;
        let mut work = self.lock();
        let Work {
            comparison,
            log,
            records: counts,
        } = &mut *work;
        let (source, partition, log) = log
            .as_mut()
            .ok_or_else(|| PyValueError::new_err("no range was begun"))?;
        for record in &records {
            let taken = log.take_with(record, |entry, compared| {
                let (offset, digest) = (record.offset, entry.seen.digest);
                if !*source {
                    counts.1 += 1;
                    let origin = record.headers.iter().rev();
                    let origin = origin
                        .filter(|header| header.key == origin::NAME.as_bytes())
                        .find_map(|header| header.value);
                    comparison.copy((*partition, offset), digest, origin);
                    return;
                }
                counts.0 += 1;
                if entry.ours {
                    comparison.original(offset, digest, compared.key);
                } else {
                    comparison.dropped(offset);
                }
            });
            taken.map_err(PyValueError::new_err)?;
            log.skip_to(record.offset + 1);
        }
        if let Some(reached) = reached {
            log.skip_to(reached);
        }
        Ok(log.is_done() || comparison.is_full())
    }

    #[getter]
    fn position(&self) -> i64 {
        self.lock()
            .log
            .as_ref()
            .map_or(-1, |(_, _, log)| log.next())
    }

    fn finish(&self) {
        self.lock().comparison.finish();
    }

    #[getter]
    fn too_many(&self) -> bool {
        self.lock().comparison.is_full()
    }

    #[getter]
    fn matched(&self) -> u64 {
        self.lock().comparison.matched()
    }

    fn counts(&self) -> ((u64, u64), (u64, u64)) {
        let work = self.lock();
        (work.records, work.comparison.left_out())
    }

    fn take(&self) -> Vec<Told> {
        self.lock()
            .comparison
            .take()
            .into_iter()
            .map(told)
            .collect()
    }
}

impl OriginComparison {
    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn told(difference: Difference) -> Told {
    let kind = match difference.kind {
        Kind::Missing => "missing",
        Kind::Duplicate => "duplicate",
        Kind::Reordered => "reordered",
        Kind::Altered => "altered",
        Kind::Foreign => "foreign",
    };
    let (partition, offset) = difference.target.unzip();
    (kind, difference.source, partition, offset)
}

//! `Acks`.

use eomirror_core::types::{AckRun, AckedPartition};
use pyo3::prelude::*;

/// A target topic, a target partition, and runs of (first offset, count).
type Partition = (String, i32, Vec<(i64, i64)>);

/// Acknowledgements of the target since the last take.
#[pyclass(frozen, module = "eomirror._core")]
pub(crate) struct Acks {
    pub(crate) acks: eomirror_core::Acks,
}

#[pymethods]
impl Acks {
    #[new]
    #[pyo3(signature = (partitions=Vec::new(), *, failed=0))]
    fn new(partitions: Vec<Partition>, failed: u64) -> Self {
        let partitions = partitions
            .into_iter()
            .map(|(topic, partition, runs)| AckedPartition {
                topic,
                partition,
                runs: runs
                    .into_iter()
                    .map(|(first, count)| AckRun { first, count })
                    .collect(),
            })
            .collect();
        Self {
            acks: eomirror_core::Acks { failed, partitions },
        }
    }

    #[getter]
    fn failed(&self) -> u64 {
        self.acks.failed
    }

    #[getter]
    fn partitions(&self) -> Vec<Partition> {
        self.acks
            .partitions
            .iter()
            .map(|acked| {
                let runs = acked.runs.iter().map(|run| (run.first, run.count));
                (acked.topic.clone(), acked.partition, runs.collect())
            })
            .collect()
    }

    fn __repr__(&self) -> String {
        format!("Acks({:?}, failed={})", self.partitions(), self.acks.failed)
    }
}

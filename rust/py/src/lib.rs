//! `eomirror._core`: the binding of the Rust crates to Python, and nothing else.
//!
//! One file per Python class. Only [`convert`] reads Python messages, only [`detach`] releases the interpreter, and
//! only [`error`] creates exceptions. The module has no thread, no runtime and no global state, so a process that has
//! imported it may fork (PySpark does).

mod acks;
mod admin;
mod audit;
mod comparison;
mod convert;
mod detach;
mod error;
mod hanging;
mod key_partition;
mod lane;
mod offset_map;
mod origin_comparison;
mod partition_account;
mod partition_map;
mod partition_scan;
mod pattern_set;
mod plan;
mod plane;
mod planner;
mod policy;
mod provenance;
mod rights;
mod sink;
mod tokens;
mod transform;
mod witness;

use pyo3::prelude::*;

/// The native core of eomirror. Import it through `eomirror._native`.
#[pymodule(gil_used = false)]
mod _core {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::{
        acks::Acks,
        admin::{alter_client_quotas, delete_topics_by_id, describe_client_quotas},
        audit::LogAudit,
        comparison::PartitionComparison,
        hanging::HangingTransactionClient,
        key_partition::key_partition,
        lane::NativeLane,
        offset_map::{decode_offset_map, encode_offset_map},
        origin_comparison::OriginComparison,
        partition_account::PartitionAccount,
        partition_map::PartitionMap,
        partition_scan::PartitionScan,
        pattern_set::PatternSet,
        plan::Plan,
        plane::PlaneReader,
        planner::{Planner, digest_behind},
        policy::Policy,
        provenance::last_hop,
        rights::lacking_rights,
        sink::{RowPlacer, SinkProducer},
        transform::Transform,
        witness::Witness,
    };

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let profile = if cfg!(debug_assertions) {
            "debug"
        } else {
            "release"
        };
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("build_profile", profile)
    }
}

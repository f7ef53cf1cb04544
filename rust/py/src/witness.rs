//! `Witness`.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::path::PathBuf;

use pyo3::prelude::*;

use crate::acks::Acks;
use crate::error::installation;

/// Entry point for librdkafka's `plugin.library.paths`; see `eomirror_witness`.
///
/// # Safety
///
/// Called by librdkafka, with a valid configuration and `size` bytes of room at `message`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn conf_init(
    conf: *mut c_void,
    plugin: *mut *mut c_void,
    message: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: the arguments are passed on unchanged, under the same contract.
    unsafe { eomirror_witness::conf_init(conf, plugin, message, size) }
}

/// Acknowledgements and requests of one librdkafka client.
#[pyclass(frozen, module = "eomirror._core")]
pub(crate) struct Witness {
    witness: eomirror_witness::Witness,
}

#[pymethods]
impl Witness {
    #[staticmethod]
    fn plugin_path(py: Python<'_>) -> PyResult<String> {
        let here = conf_init as *const c_void;
        let path = eomirror_witness::library::file_of(here)
            .and_then(|path| std::path::absolute(path).ok())
            .and_then(|path| path.into_os_string().into_string().ok());
        match path {
            // librdkafka splits its list of plugins there
            Some(path) if !path.contains(';') => Ok(path),
            found => Err(installation(
                py,
                &format!(
                    "librdkafka cannot load a plugin from this path: {}",
                    found.as_deref().unwrap_or("(not readable)")
                ),
                "install eomirror in a folder whose path is UTF-8 and has no semicolon",
            )),
        }
    }

    #[staticmethod]
    // the binding owns its arguments
    #[allow(clippy::needless_pass_by_value)]
    fn arm(py: Python<'_>, cimpl_path: PathBuf) -> PyResult<Self> {
        eomirror_witness::Witness::arm(&cimpl_path)
            .map(|witness| Self { witness })
            .map_err(|error| {
                installation(
                    py,
                    &error.to_string(),
                    "install a wheel of confluent-kafka 2.16 and pass confluent_kafka.cimpl.__file__",
                )
            })
    }

    #[getter]
    fn attached(&self) -> bool {
        self.witness.attached()
    }

    fn mark(&self) {
        self.witness.mark();
    }

    fn requests(&self) -> BTreeMap<i16, (u64, u64, u64)> {
        self.witness
            .requests()
            .into_iter()
            .map(|(api_key, requests)| {
                (api_key, (requests.sent, requests.answered, requests.errors))
            })
            .collect()
    }

    fn early_registrations(&self) -> u64 {
        self.witness.early_registrations()
    }

    fn take_acks(&self) -> Acks {
        Acks {
            acks: self.witness.take_acks(),
        }
    }
}

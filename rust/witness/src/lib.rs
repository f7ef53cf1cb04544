//! A librdkafka plugin that records every acknowledged offset, and counts every request and response.
//!
//! * Rule 7 needs the offset of every record that the target acknowledged. A delivery report costs one Python call per
//!   record; the acknowledgement interceptor costs a compare and an addition.
//! * Rule 9 requires that a commit is exactly one `EndTxn` with one successful response. librdkafka retries requests
//!   internally, and `commit_transaction()` does not report it.
//!
//! # Attachment to a client
//!
//! 1. [`Witness::arm`] stores a witness in a thread-local variable.
//! 2. The same thread creates a client whose configuration names this shared library in `plugin.library.paths`.
//!    librdkafka calls [`conf_init`], which takes the witness from the variable. Without a witness it does nothing, so
//!    no other client of the process is affected, even one that names the library.
//! 3. librdkafka calls `on_new` with the new client, and the plugin registers its three interceptors.
//!
//! librdkafka is neither built nor linked here. Its functions are looked up in the extension module that Python has
//! already loaded (see [`library`]), so they belong to the library that calls the plugin.
//!
//! # Rules on librdkafka's threads
//!
//! Callbacks take one mutex for a short time, never the interpreter's lock, and never panic across the boundary. A
//! panic is caught and counted as a failed delivery, because an acknowledgement that was not counted must not be
//! committed.
//!
//! # Ownership
//!
//! The configuration owns one reference to the witness and releases it in `on_conf_destroy`. librdkafka calls that once
//! per configuration, after everything else of the client: when the client is destroyed (`rd_kafka_destroy_final` ->
//! `rd_kafka_anyconf_destroy`), or when it could not be created. `on_destroy` would be too early: broker threads still
//! run then.

#![deny(unsafe_op_in_unsafe_fn)]
#![deny(clippy::undocumented_unsafe_blocks)]

mod interceptors;
pub mod library;
mod tally;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use eomirror_core::Acks;

pub use interceptors::conf_init;
pub use library::LibraryError;
pub use tally::Requests;

use interceptors::{ARMED, Shared};

/// Acknowledgements and requests of one client.
pub struct Witness {
    shared: Arc<Shared>,
}

impl Witness {
    /// Attaches a new witness to the next client that this thread creates with the plugin.
    ///
    /// `extension` is the file of the loaded extension module that contains librdkafka.
    pub fn arm(extension: &Path) -> Result<Self, LibraryError> {
        let shared = Arc::new(Shared::new(library::Library::find(extension)?));
        ARMED.with_borrow_mut(|armed| *armed = Some(Arc::clone(&shared)));
        Ok(Self { shared })
    }

    /// Returns true if a client took this witness.
    #[must_use]
    pub fn attached(&self) -> bool {
        self.shared.attached.load(Ordering::Acquire)
    }

    /// Resets the counts of requests. Acknowledgements stay.
    pub fn mark(&self) {
        tally::lock(&self.shared.requests).clear();
        self.shared.early_registrations.store(0, Ordering::Relaxed);
    }

    /// Returns the number of `AddPartitionsToTxn` requests since the last [`Witness::mark`] that were sent before any
    /// data.
    ///
    /// A transaction needs one. More mean that the coordinator rejected the client, because the markers of the previous
    /// transaction were still being written (`CONCURRENT_TRANSACTIONS`).
    #[must_use]
    pub fn early_registrations(&self) -> u64 {
        self.shared.early_registrations.load(Ordering::Relaxed)
    }

    /// Returns requests by API key since the last [`Witness::mark`].
    #[must_use]
    pub fn requests(&self) -> BTreeMap<i16, Requests> {
        tally::lock(&self.shared.requests).clone()
    }

    /// Returns the acknowledgements since the last call.
    #[must_use]
    pub fn take_acks(&self) -> Acks {
        tally::lock(&self.shared.acks).take()
    }
}

impl Drop for Witness {
    /// Disarms the witness, so a later, unrelated client of this thread cannot take it.
    fn drop(&mut self) {
        // the thread-local variable is gone if the thread is
        let _ = ARMED.try_with(|armed| {
            let mut armed = armed.borrow_mut();
            if armed
                .as_ref()
                .is_some_and(|shared| Arc::ptr_eq(shared, &self.shared))
            {
                *armed = None;
            }
        });
    }
}

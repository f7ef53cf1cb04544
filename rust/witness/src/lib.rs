//! A librdkafka plugin that sees what Python cannot: every acknowledged offset, and every request and answer.
//!
//! * Rule 7 needs the offset of every record that the target acknowledged. A delivery report per record costs a
//!   Python call each; the acknowledgement interceptor costs a compare and an addition.
//! * Rule 9 needs to know that a commit was exactly one `EndTxn` and one clean answer. librdkafka repeats a request
//!   on its own, and `commit_transaction()` says nothing about it.
//!
//! # How it gets in
//!
//! 1. [`Witness::arm`] leaves a witness in a thread-local place.
//! 2. The same thread creates a client whose configuration names our shared library in `plugin.library.paths`.
//!    librdkafka calls [`conf_init`], which takes the witness from that place. Without one it does nothing, so that
//!    no other client of the process is touched, even one that names the library too.
//! 3. librdkafka calls `on_new` with the finished client; there we register the three interceptors.
//!
//! Nothing of librdkafka is built or linked here. Its functions are looked up in the extension module that Python
//! has loaded already (see [`library`]), so that they belong to the very library that calls us.
//!
//! # What holds on librdkafka's threads
//!
//! Callbacks take one short mutex, never the interpreter's lock, and never panic across the boundary: a panic is
//! caught and counted as a failed delivery, because an acknowledgement that we could not count must not be committed.
//!
//! # Who frees what
//!
//! The configuration owns one reference to the witness, and gives it back in `on_conf_destroy`. librdkafka calls that
//! once for a configuration, after everything else of the client: when the client is destroyed
//! (`rd_kafka_destroy_final` -> `rd_kafka_anyconf_destroy`), or when it could not be created. `on_destroy` would be
//! too early: broker threads still run then.

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

/// What one client did, seen from inside.
pub struct Witness {
    shared: Arc<Shared>,
}

impl Witness {
    /// Makes the next client that this thread creates with the plugin attach to the new witness.
    ///
    /// `extension` is the file of the loaded extension module that carries librdkafka.
    pub fn arm(extension: &Path) -> Result<Self, LibraryError> {
        let shared = Arc::new(Shared::new(library::Library::find(extension)?));
        ARMED.with_borrow_mut(|armed| *armed = Some(Arc::clone(&shared)));
        Ok(Self { shared })
    }

    /// Whether a client took this witness.
    #[must_use]
    pub fn attached(&self) -> bool {
        self.shared.attached.load(Ordering::Acquire)
    }

    /// Forgets the requests that were counted so far. Acknowledgements stay.
    pub fn mark(&self) {
        tally::lock(&self.shared.requests).clear();
        self.shared.early_registrations.store(0, Ordering::Relaxed);
    }

    /// `AddPartitionsToTxn` requests since the last [`Witness::mark`] that went out before any data did.
    ///
    /// A transaction needs one. More of them mean that the coordinator had sent the client away, because the markers
    /// of the transaction before were still being written (`CONCURRENT_TRANSACTIONS`).
    #[must_use]
    pub fn early_registrations(&self) -> u64 {
        self.shared.early_registrations.load(Ordering::Relaxed)
    }

    /// Requests by API key since the last [`Witness::mark`].
    #[must_use]
    pub fn requests(&self) -> BTreeMap<i16, Requests> {
        tally::lock(&self.shared.requests).clone()
    }

    /// Acknowledgements since the last time.
    #[must_use]
    pub fn take_acks(&self) -> Acks {
        tally::lock(&self.shared.acks).take()
    }
}

impl Drop for Witness {
    /// A witness that nobody took must not be taken by a later, unrelated client of this thread.
    fn drop(&mut self) {
        // a thread that is already gone has no place to clear
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

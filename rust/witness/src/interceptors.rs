//! Interceptors that librdkafka calls on its own threads.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::library::{FAIL, Library, Message, NO_ERROR, ResponseError};
use crate::tally::{AckTally, Requests, lock};

thread_local! {
    /// The witness for the next client that this thread creates.
    pub(crate) static ARMED: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
}

const NAME: &CStr = c"eomirror-witness";

// API keys of https://kafka.apache.org/protocol#protocol_api_keys
const PRODUCE: i16 = 0;
const ADD_PARTITIONS_TO_TXN: i16 = 24;

/// State that the client's threads write and Python reads. It has two mutexes, so requests never wait for
/// acknowledgements.
pub(crate) struct Shared {
    pub(crate) library: Library,
    pub(crate) attached: AtomicBool,
    pub(crate) requests: Mutex<BTreeMap<i16, Requests>>,
    pub(crate) early_registrations: AtomicU64,
    pub(crate) acks: Mutex<AckTally>,
}

impl Shared {
    pub(crate) fn new(library: Library) -> Self {
        Self {
            library,
            attached: AtomicBool::new(false),
            requests: Mutex::default(),
            early_registrations: AtomicU64::new(0),
            acks: Mutex::default(),
        }
    }

    fn count(&self, api_key: i16, add: impl FnOnce(&mut Requests)) {
        add(lock(&self.requests).entry(api_key).or_default());
    }

    fn sent(&self, api_key: i16) {
        let mut requests = lock(&self.requests);
        let produced = requests.get(&PRODUCE).is_some_and(|data| data.sent > 0);
        if api_key == ADD_PARTITIONS_TO_TXN && !produced {
            self.early_registrations.fetch_add(1, Ordering::Relaxed);
        }
        requests.entry(api_key).or_default().sent += 1;
    }
}

/// Runs the body of a callback. A panic must not unwind into C, and an acknowledgement that it failed to count must not
/// be committed.
fn guarded(shared: &Shared, body: impl FnOnce()) -> ResponseError {
    if catch_unwind(AssertUnwindSafe(body)).is_err() {
        lock(&shared.acks).failed();
    }
    NO_ERROR
}

/// `rd_kafka_plugin_f_conf_init_t`: librdkafka loads the plugin for a configuration.
///
/// Attaches the configuration to the witness that this thread has armed; does nothing if there is none.
///
/// # Safety
///
/// `conf` is a valid configuration, and `message` has room for `size` bytes.
pub unsafe fn conf_init(
    conf: *mut c_void,
    _plugin: *mut *mut c_void,
    message: *mut c_char,
    size: usize,
) -> ResponseError {
    let Ok(Some(shared)) = ARMED.try_with(|armed| armed.try_borrow_mut().ok()?.take()) else {
        return NO_ERROR;
    };
    let library = shared.library;
    // from here on the configuration owns this reference
    let opaque = Arc::into_raw(shared).cast_mut().cast::<c_void>();
    // SAFETY: `conf` is valid (guaranteed by the caller), and the functions are librdkafka's own.
    let error =
        unsafe { (library.add_on_conf_destroy)(conf, NAME.as_ptr(), on_conf_destroy, opaque) };
    if error != NO_ERROR {
        // SAFETY: on_conf_destroy will not be called, so the reference still belongs to this function.
        drop(unsafe { Arc::from_raw(opaque.cast_const().cast::<Shared>()) });
        // SAFETY: guaranteed by the caller.
        return unsafe { refuse("on_conf_destroy", message, size) };
    }
    // SAFETY: as above; on_conf_destroy keeps `opaque` alive for as long as the configuration lives.
    let error = unsafe { (library.add_on_new)(conf, NAME.as_ptr(), on_new, opaque) };
    if error != NO_ERROR {
        // SAFETY: guaranteed by the caller.
        return unsafe { refuse("on_new", message, size) };
    }
    NO_ERROR
}

/// Writes a message for the caller of `rd_kafka_conf_set` and returns an error.
///
/// # Safety
///
/// `message` is null or has room for `size` bytes.
unsafe fn refuse(interceptor: &str, message: *mut c_char, size: usize) -> ResponseError {
    let text = format!("eomirror: librdkafka rejects the {interceptor} interceptor");
    if !message.is_null() && size > 0 {
        let length = text.len().min(size - 1);
        // SAFETY: `length` + 1 bytes fit, and the two places cannot overlap.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast::<c_char>(), message, length);
            message.add(length).write(0);
        }
    }
    FAIL
}

unsafe extern "C" fn on_conf_destroy(opaque: *mut c_void) -> ResponseError {
    // SAFETY: `opaque` is the reference that conf_init gave to this configuration, and this is the last call with it.
    drop(unsafe { Arc::from_raw(opaque.cast_const().cast::<Shared>()) });
    NO_ERROR
}

unsafe extern "C" fn on_new(
    client: *mut c_void,
    _conf: *const c_void,
    opaque: *mut c_void,
    message: *mut c_char,
    size: usize,
) -> ResponseError {
    // SAFETY: the configuration's reference keeps the witness alive until on_conf_destroy, which comes last.
    let shared = unsafe { &*opaque.cast_const().cast::<Shared>() };
    let library = shared.library;
    // SAFETY: `client` is the new client, and the functions are librdkafka's own.
    let errors = unsafe {
        [
            (library.add_on_acknowledgement)(client, NAME.as_ptr(), on_acknowledgement, opaque),
            (library.add_on_request_sent)(client, NAME.as_ptr(), on_request_sent, opaque),
            (library.add_on_response_received)(client, NAME.as_ptr(), on_response_received, opaque),
        ]
    };
    if errors.iter().any(|error| *error != NO_ERROR) {
        // SAFETY: librdkafka provides room for `size` bytes.
        return unsafe { refuse("acknowledgement or request", message, size) };
    }
    shared.attached.store(true, Ordering::Release);
    NO_ERROR
}

unsafe extern "C" fn on_acknowledgement(
    _client: *mut c_void,
    message: *mut Message,
    opaque: *mut c_void,
) -> ResponseError {
    // SAFETY: as in on_new.
    let shared = unsafe { &*opaque.cast_const().cast::<Shared>() };
    guarded(shared, || {
        // SAFETY: librdkafka passes a valid message that no other thread writes to during the call.
        let message = unsafe { &*message };
        if message.err != NO_ERROR || message.topic.is_null() {
            lock(&shared.acks).failed();
            return;
        }
        // SAFETY: the message holds its topic, and the topic its name, for the length of the call.
        let topic = unsafe { CStr::from_ptr((shared.library.topic_name)(message.topic)) };
        lock(&shared.acks).delivered(topic.to_bytes(), message.partition, message.offset);
    })
}

unsafe extern "C" fn on_request_sent(
    _client: *mut c_void,
    _socket: c_int,
    _broker: *const c_char,
    _broker_id: i32,
    api_key: i16,
    _api_version: i16,
    _correlation: i32,
    _size: usize,
    opaque: *mut c_void,
) -> ResponseError {
    // SAFETY: as in on_new.
    let shared = unsafe { &*opaque.cast_const().cast::<Shared>() };
    guarded(shared, || {
        shared.sent(api_key);
    })
}

unsafe extern "C" fn on_response_received(
    _client: *mut c_void,
    _socket: c_int,
    _broker: *const c_char,
    _broker_id: i32,
    api_key: i16,
    _api_version: i16,
    _correlation: i32,
    _size: usize,
    _round_trip: i64,
    error: ResponseError,
    opaque: *mut c_void,
) -> ResponseError {
    // SAFETY: as in on_new.
    let shared = unsafe { &*opaque.cast_const().cast::<Shared>() };
    guarded(shared, || {
        shared.count(api_key, |requests| {
            requests.answered += 1;
            requests.errors += u64::from(error != NO_ERROR);
        });
    })
}

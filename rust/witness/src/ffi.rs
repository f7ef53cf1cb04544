//! The border to librdkafka: its types as far as they are needed, and the callbacks.
//!
//! Every `unsafe` here rests on librdkafka's contract (rdkafka.h of 2.16): pointers that it hands to a callback are
//! valid for the call, strings are NUL-terminated, and a client's interceptors are not called after its destruction.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use crate::Witness;

const NO_ERROR: c_int = 0;
const NAME: &CStr = c"eomirror";

/// `rd_kafka_message_t`, whose layout is part of librdkafka's ABI.
#[repr(C)]
struct Message {
    err: c_int,
    rkt: *const c_void,
    partition: i32,
    payload: *mut c_void,
    len: usize,
    key: *mut c_void,
    key_len: usize,
    offset: i64,
    private: *mut c_void,
}

type OnNew =
    unsafe extern "C" fn(*mut c_void, *const c_void, *mut c_void, *mut c_char, usize) -> c_int;
type OnRequestSent = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    *const c_char,
    i32,
    i16,
    i16,
    i32,
    usize,
    *mut c_void,
) -> c_int;
type OnResponseReceived = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    *const c_char,
    i32,
    i16,
    i16,
    i32,
    usize,
    i64,
    c_int,
    *mut c_void,
) -> c_int;
type OnAcknowledgement = unsafe extern "C" fn(*mut c_void, *mut Message, *mut c_void) -> c_int;

type AddOnNew = unsafe extern "C" fn(*mut c_void, *const c_char, OnNew, *mut c_void) -> c_int;
type AddOnRequestSent =
    unsafe extern "C" fn(*mut c_void, *const c_char, OnRequestSent, *mut c_void) -> c_int;
type AddOnResponseReceived =
    unsafe extern "C" fn(*mut c_void, *const c_char, OnResponseReceived, *mut c_void) -> c_int;
type AddOnAcknowledgement =
    unsafe extern "C" fn(*mut c_void, *const c_char, OnAcknowledgement, *mut c_void) -> c_int;
type TopicName = unsafe extern "C" fn(*const c_void) -> *const c_char;

/// librdkafka's functions, as the loaded library has them.
#[derive(Clone, Copy)]
struct Api {
    add_on_new: AddOnNew,
    add_on_request_sent: AddOnRequestSent,
    add_on_response_received: AddOnResponseReceived,
    add_on_acknowledgement: AddOnAcknowledgement,
    topic_name: TopicName,
}

static API: OnceLock<Api> = OnceLock::new();

/// Why librdkafka's functions could not be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadError(String);

impl std::fmt::Display for LoadError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for LoadError {}

/// Finds librdkafka's functions through a library that depends on it and is loaded already.
pub fn load(path: &str) -> Result<(), LoadError> {
    if API.get().is_some() {
        return Ok(());
    }
    let name = CString::new(path).map_err(|_| LoadError(format!("{path:?} is not a path")))?;
    // SAFETY: the name is a C string; RTLD_NOLOAD only gives a handle to what is loaded, and runs no code.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return Err(LoadError(format!("{path} is not loaded")));
    }
    // SAFETY: each symbol has the type that rdkafka.h declares for its name.
    let api = unsafe {
        Api {
            add_on_new: std::mem::transmute::<*mut c_void, AddOnNew>(symbol(
                handle,
                c"rd_kafka_conf_interceptor_add_on_new",
            )?),
            add_on_request_sent: std::mem::transmute::<*mut c_void, AddOnRequestSent>(symbol(
                handle,
                c"rd_kafka_interceptor_add_on_request_sent",
            )?),
            add_on_response_received: std::mem::transmute::<*mut c_void, AddOnResponseReceived>(
                symbol(handle, c"rd_kafka_interceptor_add_on_response_received")?,
            ),
            add_on_acknowledgement: std::mem::transmute::<*mut c_void, AddOnAcknowledgement>(
                symbol(handle, c"rd_kafka_interceptor_add_on_acknowledgement")?,
            ),
            topic_name: std::mem::transmute::<*mut c_void, TopicName>(symbol(
                handle,
                c"rd_kafka_topic_name",
            )?),
        }
    };
    // somebody else may have been quicker, with the same functions
    let _ = API.set(api);
    Ok(())
}

/// A function of the library behind `handle`, never null.
unsafe fn symbol(handle: *mut c_void, name: &CStr) -> Result<*mut c_void, LoadError> {
    // SAFETY: the handle is open and the name is a C string.
    let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
    if found.is_null() {
        return Err(LoadError(format!(
            "librdkafka has no {}",
            name.to_string_lossy()
        )));
    }
    Ok(found)
}

/// librdkafka's entry into the plugin, called for every configuration that names it.
///
/// # Safety
///
/// `conf` is librdkafka's, valid for the call.
#[must_use]
pub unsafe fn conf_init(conf: *mut c_void) -> c_int {
    // without an armed witness somebody else named the plugin: do nothing, and let the client be
    let Some(api) = API.get() else {
        return NO_ERROR;
    };
    // SAFETY: the configuration is valid for the call, the name and the callback are static.
    unsafe { (api.add_on_new)(conf, NAME.as_ptr(), on_new, std::ptr::null_mut()) }
}

unsafe extern "C" fn on_new(
    client: *mut c_void,
    _conf: *const c_void,
    _opaque: *mut c_void,
    _error: *mut c_char,
    _size: usize,
) -> c_int {
    guarded(|| {
        let (Some(api), Some(witness)) = (API.get(), Witness::take_armed()) else {
            return;
        };
        // The client's threads may call back until the very end of its destruction, after which nobody tells us.
        // So this reference is never given back: some hundred bytes per client of a process.
        let opaque = Arc::into_raw(Arc::clone(&witness))
            .cast_mut()
            .cast::<c_void>();
        // SAFETY: interceptors may be added in on_new; the callbacks are static and the opaque lives for ever.
        let results = unsafe {
            [
                (api.add_on_request_sent)(client, NAME.as_ptr(), on_request_sent, opaque),
                (api.add_on_response_received)(client, NAME.as_ptr(), on_response_received, opaque),
                (api.add_on_acknowledgement)(client, NAME.as_ptr(), on_acknowledgement, opaque),
            ]
        };
        if results == [NO_ERROR; 3] {
            witness.set_attached();
        }
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
) -> c_int {
    // SAFETY: the opaque is ours, see on_new.
    let witness = unsafe { &*opaque.cast::<Witness>() };
    guarded(|| witness.sent(api_key))
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
    _rtt: i64,
    error: c_int,
    opaque: *mut c_void,
) -> c_int {
    // SAFETY: the opaque is ours, see on_new.
    let witness = unsafe { &*opaque.cast::<Witness>() };
    guarded(|| witness.answered(api_key, error != NO_ERROR))
}

unsafe extern "C" fn on_acknowledgement(
    _client: *mut c_void,
    message: *mut Message,
    opaque: *mut c_void,
) -> c_int {
    // SAFETY: the opaque is ours, see on_new; the message is valid for the call.
    let (witness, message) = unsafe { (&*opaque.cast::<Witness>(), &*message) };
    guarded(|| {
        if message.err != NO_ERROR || message.offset < 0 || message.rkt.is_null() {
            witness.refused();
            return;
        }
        let Some(api) = API.get() else {
            witness.refused();
            return;
        };
        // SAFETY: the topic is valid for the call, its name is a C string that lives as long.
        let name = unsafe { CStr::from_ptr((api.topic_name)(message.rkt)) };
        match name.to_str() {
            Ok(topic) => witness.acknowledged(topic, message.partition, message.offset),
            Err(_) => witness.refused(),
        }
    })
}

/// A panic must not cross into C; what it interrupted shows as a missing acknowledgement or answer, which fails the
/// transaction.
fn guarded(work: impl FnOnce()) -> c_int {
    let _ = catch_unwind(AssertUnwindSafe(work));
    NO_ERROR
}

//! Finds librdkafka's functions in the copy that the process has loaded.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `rd_kafka_resp_err_t`: 0 is no error, negative codes are the library's own.
pub(crate) type ResponseError = c_int;
pub(crate) const NO_ERROR: ResponseError = 0;
/// `RD_KAFKA_RESP_ERR__FAIL`
pub(crate) const FAIL: ResponseError = -196;

/// Leading part of `rd_kafka_message_t`, laid out as in rdkafka.h; it is only read through librdkafka's pointer.
#[repr(C)]
pub(crate) struct Message {
    pub(crate) err: ResponseError,
    pub(crate) topic: *mut c_void,
    pub(crate) partition: i32,
    pub(crate) payload: *mut c_void,
    pub(crate) length: usize,
    pub(crate) key: *mut c_void,
    pub(crate) key_length: usize,
    pub(crate) offset: i64,
}

pub(crate) type OnConfDestroy = unsafe extern "C" fn(*mut c_void) -> ResponseError;
pub(crate) type OnNew = unsafe extern "C" fn(
    *mut c_void,
    *const c_void,
    *mut c_void,
    *mut c_char,
    usize,
) -> ResponseError;
pub(crate) type OnAcknowledgement =
    unsafe extern "C" fn(*mut c_void, *mut Message, *mut c_void) -> ResponseError;
pub(crate) type OnRequestSent = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    *const c_char,
    i32,
    i16,
    i16,
    i32,
    usize,
    *mut c_void,
) -> ResponseError;
pub(crate) type OnResponseReceived = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    *const c_char,
    i32,
    i16,
    i16,
    i32,
    usize,
    i64,
    ResponseError,
    *mut c_void,
) -> ResponseError;

/// Type of all librdkafka functions that add an interceptor. Arguments: the object, a name, the callback, and a pointer
/// that the callback receives.
type Add<F> = unsafe extern "C" fn(*mut c_void, *const c_char, F, *mut c_void) -> ResponseError;

/// The librdkafka functions in use. Copies of pointers into a library that is never unloaded.
#[derive(Clone, Copy)]
pub(crate) struct Library {
    pub(crate) add_on_conf_destroy: Add<OnConfDestroy>,
    pub(crate) add_on_new: Add<OnNew>,
    pub(crate) add_on_acknowledgement: Add<OnAcknowledgement>,
    pub(crate) add_on_request_sent: Add<OnRequestSent>,
    pub(crate) add_on_response_received: Add<OnResponseReceived>,
    pub(crate) topic_name: unsafe extern "C" fn(*const c_void) -> *const c_char,
}

/// librdkafka, or one of its functions, was not found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LibraryError {
    message: String,
}

impl fmt::Display for LibraryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for LibraryError {}

impl Library {
    /// Finds the functions through `extension`, a loaded shared library that depends on librdkafka. The handle is never
    /// closed, so the library cannot be unloaded while its interceptors are registered.
    pub(crate) fn find(extension: &Path) -> Result<Self, LibraryError> {
        let refused = |reason: &str| LibraryError {
            message: format!("{}: {reason}", extension.display()),
        };
        let path = CString::new(extension.as_os_str().as_bytes())
            .map_err(|_| refused("the path contains a NUL byte"))?;
        // SAFETY: `path` is a C string; NOLOAD never runs foreign code, it only finds loaded libraries.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_NOW) };
        if handle.is_null() {
            return Err(refused(
                "this extension module is not loaded in this process",
            ));
        }
        let symbol = |name: &CStr| {
            // SAFETY: `handle` is open and `name` is a C string. dlsym also searches the extension's dependencies.
            let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
            if address.is_null() {
                Err(refused(&format!(
                    "its librdkafka has no function {}",
                    name.to_string_lossy()
                )))
            } else {
                Ok(address)
            }
        };
        // SAFETY: each address is the function of that name, and its type here is the one in rdkafka.h. Those
        // declarations are part of librdkafka's stable ABI.
        unsafe {
            Ok(Self {
                add_on_conf_destroy: std::mem::transmute::<*mut c_void, Add<OnConfDestroy>>(
                    symbol(c"rd_kafka_conf_interceptor_add_on_conf_destroy")?,
                ),
                add_on_new: std::mem::transmute::<*mut c_void, Add<OnNew>>(symbol(
                    c"rd_kafka_conf_interceptor_add_on_new",
                )?),
                add_on_acknowledgement: std::mem::transmute::<*mut c_void, Add<OnAcknowledgement>>(
                    symbol(c"rd_kafka_interceptor_add_on_acknowledgement")?,
                ),
                add_on_request_sent: std::mem::transmute::<*mut c_void, Add<OnRequestSent>>(
                    symbol(c"rd_kafka_interceptor_add_on_request_sent")?,
                ),
                add_on_response_received: std::mem::transmute::<*mut c_void, Add<OnResponseReceived>>(
                    symbol(c"rd_kafka_interceptor_add_on_response_received")?,
                ),
                topic_name: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*const c_void) -> *const c_char,
                >(symbol(c"rd_kafka_topic_name")?),
            })
        }
    }
}

/// Returns the file that contains `function`: the shared library that this code was built into.
///
/// The address is only looked up, never called or read, so any value is sound.
#[must_use]
#[allow(clippy::not_unsafe_ptr_arg_deref)] // dladdr takes any address; clippy cannot know
pub fn file_of(function: *const c_void) -> Option<std::path::PathBuf> {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr takes any address and fills the structure if it finds a library; 0 means that it did not.
    let found = unsafe {
        if libc::dladdr(function, found.as_mut_ptr()) == 0 {
            return None;
        }
        found.assume_init()
    };
    if found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr filled in a C string that is valid as long as the library is loaded.
    let name = unsafe { CStr::from_ptr(found.dli_fname) };
    Some(Path::new(std::ffi::OsStr::from_bytes(name.to_bytes())).to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Library, file_of};
    use std::path::Path;

    #[test]
    fn a_library_that_is_not_loaded_is_an_error_and_is_not_loaded() {
        let message = Library::find(Path::new("/no/such/cimpl.so"))
            .err()
            .unwrap()
            .to_string();
        assert_eq!(
            message,
            "/no/such/cimpl.so: this extension module is not loaded in this process"
        );
    }

    #[test]
    fn a_library_without_librdkafka_is_an_error_with_the_function() {
        let libc = file_of(libc::malloc as *const std::ffi::c_void).unwrap();
        let message = Library::find(&libc).err().unwrap().to_string();
        assert!(
            message.contains("rd_kafka_conf_interceptor_add_on_conf_destroy"),
            "{message}"
        );
    }
}

//! Strings of the server: any bytes, no terminator.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use redis_module::raw;

use super::present::present;

/// A string that somebody else keeps alive: an argument, a key's name, or a [`ServerString`].
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct ServerStr<'a> {
    raw: NonNull<raw::RedisModuleString>,
    owner: PhantomData<&'a raw::RedisModuleString>,
}

impl<'a> ServerStr<'a> {
    /// # Safety
    /// `raw` points to a string that lives for `'a`.
    pub(super) unsafe fn new(raw: NonNull<raw::RedisModuleString>) -> Self {
        Self { raw, owner: PhantomData }
    }

    pub(super) fn as_ptr(self) -> *mut raw::RedisModuleString {
        self.raw.as_ptr()
    }

    /// The bytes.
    pub fn bytes(self) -> &'a [u8] {
        let mut length = 0;
        // SAFETY: the string lives for 'a, and the server does not move a string that is referred to.
        unsafe {
            let start = present(raw::RedisModule_StringPtrLen)(self.as_ptr(), &mut length);
            std::slice::from_raw_parts(start.cast(), length)
        }
    }

    /// The integer that the bytes spell by the server's own rules: no sign but a minus, no blanks, no
    /// leading zeros, within 64 bits.
    pub fn integer(self) -> Option<i64> {
        let mut value = 0;
        // SAFETY: the string lives for 'a; `value` outlives the call.
        let status = unsafe { present(raw::RedisModule_StringToLongLong)(self.as_ptr(), &mut value) };
        (status == raw::REDISMODULE_OK as i32).then_some(value)
    }
}

/// A string of our own, or one that we share with the server.
pub struct ServerString(NonNull<raw::RedisModuleString>);

impl ServerString {
    /// Copies the bytes.
    pub fn new(bytes: &[u8]) -> Self {
        // SAFETY: the server copies `len` bytes from a slice of that length; a null context is allowed.
        let raw = unsafe {
            present(raw::RedisModule_CreateString)(ptr::null_mut(), bytes.as_ptr().cast(), bytes.len())
        };
        // SAFETY: the server never answers null here; it ends the process where memory runs out.
        Self(unsafe { NonNull::new_unchecked(raw) })
    }

    /// The decimal digits of a number.
    pub fn from_integer(value: i64) -> Self {
        // SAFETY: a null context is allowed.
        let raw = unsafe { present(raw::RedisModule_CreateStringFromLongLong)(ptr::null_mut(), value) };
        // SAFETY: the server never answers null here; it ends the process where memory runs out.
        Self(unsafe { NonNull::new_unchecked(raw) })
    }

    /// # Safety
    /// The caller hands over one reference to the string.
    pub(super) unsafe fn from_raw(raw: *mut raw::RedisModuleString) -> Option<Self> {
        NonNull::new(raw).map(Self)
    }

    /// Borrows it.
    pub fn as_str(&self) -> ServerStr<'_> {
        // SAFETY: our reference keeps the string alive for as long as the borrow.
        unsafe { ServerStr::new(self.0) }
    }
}

impl std::fmt::Debug for ServerString {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.as_str().bytes().escape_ascii())
    }
}

impl Drop for ServerString {
    fn drop(&mut self) {
        // SAFETY: this gives back the one reference that we hold; a null context is allowed.
        unsafe { present(raw::RedisModule_FreeString)(ptr::null_mut(), self.0.as_ptr()) }
    }
}

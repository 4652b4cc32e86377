//! An open key.

use std::ffi::{c_int, c_void};
use std::ops::ControlFlow;
use std::ptr::{self, NonNull};

use redis_module::raw;

use super::present::present;
use super::scan::scan_fields;
use super::{Context, ServerStr, ServerString};

/// What a key is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To read only: allowed on a replica and in a handler.
    Read,
    /// To write: an expired key is reaped, and that is propagated. Opening alone changes nothing else.
    Write,
}

/// A field of a hash, and its value.
pub type FieldValue<'v> = (ServerStr<'v>, ServerStr<'v>);

/// A key opened for the length of a callback.
pub struct Key<'c> {
    raw: NonNull<raw::RedisModuleKey>,
    ctx: Context<'c>,
    name: ServerStr<'c>,
    kind: isize,
}

impl<'c> Key<'c> {
    /// Opens a key; `None` where it does not exist and is opened to read.
    pub fn open(ctx: Context<'c>, name: ServerStr<'c>, access: Access) -> Option<Self> {
        let mode = match access {
            Access::Read => raw::REDISMODULE_READ,
            Access::Write => raw::REDISMODULE_READ | raw::REDISMODULE_WRITE,
        };
        // SAFETY: Presence, Liveness.
        let raw = unsafe { present(raw::RedisModule_OpenKey)(ctx.as_ptr(), name.as_ptr(), mode as c_int) };
        // SAFETY: we have just opened it.
        Some(unsafe { Self::from_raw(ctx, name, NonNull::new(raw.cast())?) })
    }

    /// # Safety
    /// The key is open in this context, under this name, and is for us to close.
    pub(super) unsafe fn from_raw(
        ctx: Context<'c>,
        name: ServerStr<'c>,
        raw: NonNull<raw::RedisModuleKey>,
    ) -> Self {
        // SAFETY: Presence; the key is open.
        let kind = unsafe { present(raw::RedisModule_KeyType)(raw.as_ptr()) as isize };
        Self { raw, ctx, name, kind }
    }

    /// The key's name.
    pub fn name(&self) -> ServerStr<'c> {
        self.name
    }

    /// The context that it was opened in.
    pub fn context(&self) -> Context<'c> {
        self.ctx
    }

    /// Was there no value when the key was opened?
    pub fn is_empty(&self) -> bool {
        self.kind == raw::REDISMODULE_KEYTYPE_EMPTY
    }

    /// Was the value a hash when the key was opened?
    pub fn is_hash(&self) -> bool {
        self.kind == raw::REDISMODULE_KEYTYPE_HASH
    }

    /// The number of fields of a hash.
    pub fn len(&self) -> usize {
        // SAFETY: Presence; the key is open.
        unsafe { present(raw::RedisModule_ValueLength)(self.raw.as_ptr()) }
    }

    /// The value of a field of a hash.
    pub fn hash_get(&self, field: ServerStr<'_>) -> Option<ServerString> {
        let mut value = ptr::null_mut::<raw::RedisModuleString>();
        // SAFETY: Presence; the key is open; the arguments are a field and a place for its value, ended by
        // a null. The value comes with a reference for us.
        unsafe {
            present(raw::RedisModule_HashGet)(
                self.raw.as_ptr(),
                raw::REDISMODULE_HASH_NONE as c_int,
                field.as_ptr(),
                &raw mut value,
                ptr::null_mut::<c_void>(),
            );
            ServerString::from_raw(value)
        }
    }

    /// Has the hash this field?
    pub fn hash_has(&self, field: ServerStr<'_>) -> bool {
        let mut exists: c_int = 0;
        // SAFETY: Presence; the key is open; with EXISTS the place is an int's; a null ends the list.
        unsafe {
            present(raw::RedisModule_HashGet)(
                self.raw.as_ptr(),
                raw::REDISMODULE_HASH_EXISTS as c_int,
                field.as_ptr(),
                &raw mut exists,
                ptr::null_mut::<c_void>(),
            );
        }
        exists != 0
    }

    /// Sets a field, and creates the hash where there is none. The key is open to write.
    pub fn hash_set(&mut self, (field, value): FieldValue<'_>) {
        self.hash_put(field, value.as_ptr());
    }

    /// Sets two fields in one go. The key is open to write.
    pub fn hash_set_both(&mut self, first: FieldValue<'_>, second: FieldValue<'_>) {
        // SAFETY: Presence; the key is open; fields and values are live strings; a null ends the list. The
        // server copies all of them.
        unsafe {
            present(raw::RedisModule_HashSet)(
                self.raw.as_ptr(),
                raw::REDISMODULE_HASH_NONE as c_int,
                first.0.as_ptr(),
                first.1.as_ptr(),
                second.0.as_ptr(),
                second.1.as_ptr(),
                ptr::null_mut::<c_void>(),
            );
        }
    }

    /// Deletes a field, and the key with its last field. The key is open to write.
    pub fn hash_delete(&mut self, field: ServerStr<'_>) {
        self.hash_put(field, raw::REDISMODULE_HASH_DELETE.cast_mut());
    }

    fn hash_put(&mut self, field: ServerStr<'_>, value: *mut raw::RedisModuleString) {
        // SAFETY: Presence; the key is open; field and value are live strings, or the value is the marker
        // for deletion; a null ends the list. The server copies both.
        unsafe {
            present(raw::RedisModule_HashSet)(
                self.raw.as_ptr(),
                raw::REDISMODULE_HASH_NONE as c_int,
                field.as_ptr(),
                value,
                ptr::null_mut::<c_void>(),
            );
        }
    }

    /// Looks at the fields of a hash, until told to break.
    pub fn hash_fields<B>(&self, mut look: impl FnMut(&[u8]) -> ControlFlow<B>) -> Option<B> {
        let mut found = None;
        scan_fields(self.raw, &mut |field| {
            found = look(field).break_value();
            found.is_some()
        });
        found
    }

    /// When the key expires, in milliseconds since the Unix epoch; `None` where it has no TTL.
    pub fn expires_at(&self) -> Option<i64> {
        // SAFETY: Presence; the key is open.
        let at = unsafe { present(raw::RedisModule_GetAbsExpire)(self.raw.as_ptr()) };
        (at != i64::from(raw::REDISMODULE_NO_EXPIRE)).then_some(at)
    }

    /// Sets when the key expires. The key is open to write, and not empty.
    pub fn expire_at(&mut self, at: i64) {
        // SAFETY: Presence; the key is open.
        unsafe { present(raw::RedisModule_SetAbsExpire)(self.raw.as_ptr(), at) };
    }

    /// Deletes the key. It is open to write.
    pub fn delete(&mut self) {
        // SAFETY: Presence; the key is open, and stays a valid handle of an empty key.
        unsafe { present(raw::RedisModule_DeleteKey)(self.raw.as_ptr()) };
    }
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        // SAFETY: Presence; the key was opened by us and is closed once.
        unsafe { present(raw::RedisModule_CloseKey)(self.raw.as_ptr()) };
    }
}

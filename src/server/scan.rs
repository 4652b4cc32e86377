//! Walks over a hash's fields and over the whole keyspace.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use redis_module::raw;

use super::guard::guarded;
use super::present::present;
use super::{Context, Key, ServerStr};

struct Cursor(*mut raw::RedisModuleScanCursor);

impl Cursor {
    fn new() -> Self {
        // SAFETY: Presence.
        Self(unsafe { present(raw::RedisModule_ScanCursorCreate)() })
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        // SAFETY: Presence; made by us, destroyed once.
        unsafe { present(raw::RedisModule_ScanCursorDestroy)(self.0) };
    }
}

/// Shows each field name of an open hash to `visit`, until it answers that it has seen enough.
pub(super) fn scan_fields(key: NonNull<raw::RedisModuleKey>, visit: &mut dyn FnMut(&[u8]) -> bool) {
    struct Visit<'a> {
        look: &'a mut dyn FnMut(&[u8]) -> bool,
        done: bool,
    }
    unsafe extern "C" fn on_field(
        _key: *mut raw::RedisModuleKey,
        field: *mut raw::RedisModuleString,
        _value: *mut raw::RedisModuleString,
        visit: *mut c_void,
    ) {
        // SAFETY: `visit` is what this scan passed, and nothing else refers to it during the call.
        let visit = unsafe { &mut *visit.cast::<Visit<'_>>() };
        let Some(field) = NonNull::new(field).filter(|_| !visit.done) else { return };
        // SAFETY: the server keeps the field's name for the length of this call.
        let field = unsafe { ServerStr::new(field) };
        visit.done = guarded(|| (visit.look)(field.bytes())).unwrap_or(true);
    }
    let cursor = Cursor::new();
    let mut visit = Visit { look: visit, done: false };
    while !visit.done {
        // SAFETY: Presence; the key is an open hash that is not written to meanwhile; `visit` outlives the
        // call.
        let more = unsafe {
            let scan = present(raw::RedisModule_ScanKey);
            scan(key.as_ptr(), cursor.0, Some(on_field), (&raw mut visit).cast())
        };
        if more == 0 {
            break;
        }
    }
}

/// Shows each hash of the selected database, those too that have expired and are not reaped yet.
/// `look` must not write.
pub fn for_each_hash(ctx: Context<'_>, look: &mut dyn FnMut(&Key<'_>)) {
    type Look<'a> = &'a mut dyn FnMut(&Key<'_>);
    unsafe extern "C" fn on_key(
        ctx: *mut raw::RedisModuleCtx,
        name: *mut raw::RedisModuleString,
        key: *mut raw::RedisModuleKey,
        look: *mut c_void,
    ) {
        // SAFETY: `look` is what this scan passed, and nothing else refers to it during the call.
        let look = unsafe { &mut *look.cast::<Look<'_>>() };
        let (Some(name), Some(key)) = (NonNull::new(name), NonNull::new(key)) else { return };
        // SAFETY: the server passes its context, the key's name and the key opened to read. It closes the
        // key itself, so ours must not.
        let key = unsafe { ManuallyDrop::new(Key::from_raw(Context::new(ctx), ServerStr::new(name), key)) };
        if key.is_hash() {
            guarded(|| look(&key));
        }
    }
    let cursor = Cursor::new();
    let mut look: Look<'_> = look;
    // SAFETY: Presence, Liveness; `look` outlives the call.
    while unsafe {
        let scan = present(raw::RedisModule_Scan);
        scan(ctx.as_ptr(), cursor.0, Some(on_key), (&raw mut look).cast())
    } != 0
    {}
}

//! The module's section of INFO.

use std::ffi::{CStr, c_int};
use std::marker::PhantomData;

use redis_module::raw;

use super::Context;
use super::guard::guarded;
use super::present::present;

/// What fills the section.
pub trait InfoSource {
    /// Called for INFO, and when the server writes a crash report: it must not rely on anything.
    fn fill(section: InfoSection<'_>);
}

/// An open section; each field's name gets the module's name in front.
#[derive(Clone, Copy)]
pub struct InfoSection<'i> {
    raw: *mut raw::RedisModuleInfoCtx,
    call: PhantomData<&'i raw::RedisModuleInfoCtx>,
}

impl InfoSection<'_> {
    /// Adds a field.
    pub fn number(self, field: &CStr, value: u64) {
        // SAFETY: Presence, Liveness; the server copies the name.
        unsafe { present(raw::RedisModule_InfoAddFieldULongLong)(self.raw, field.as_ptr(), value) };
    }
}

/// Registers the section; it bears the module's name alone.
pub fn register_info<S: InfoSource>(ctx: Context<'_>) {
    unsafe extern "C" fn on_info<S: InfoSource>(info: *mut raw::RedisModuleInfoCtx, _crash: c_int) {
        // SAFETY: Presence; the server passes the context of this callback.
        let wanted = unsafe { present(raw::RedisModule_InfoAddSection)(info, c"".as_ptr()) };
        if wanted == raw::REDISMODULE_OK as c_int {
            guarded(|| S::fill(InfoSection { raw: info, call: PhantomData }));
        }
    }
    // SAFETY: Presence, Liveness.
    unsafe { present(raw::RedisModule_RegisterInfoFunc)(ctx.as_ptr(), Some(on_info::<S>)) };
}

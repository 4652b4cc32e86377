//! What is to be done right after the command, transaction or script that a keyspace event belongs to.

use std::ffi::c_void;
use std::ptr;

use redis_module::raw;

use super::Context;
use super::guard::guarded;

/// A piece of work that may write, as a handler must not. What it propagates is one transaction with what
/// caused it.
pub trait Job {
    /// Called once, outside any command, before the next one.
    fn run(ctx: Context<'_>);
}

/// Has a job done after this; `false` where the server can't (Redis 7.0, or while it loads).
pub fn after_this<J: Job>(ctx: Context<'_>) -> bool {
    unsafe extern "C" fn on_job<J: Job>(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
        // SAFETY: the server passes the context of this callback.
        guarded(|| J::run(unsafe { Context::new(ctx) }));
    }
    // SAFETY: Presence (where it is absent, there are no such jobs), Liveness; the callback takes no data.
    unsafe {
        raw::RedisModule_AddPostNotificationJob.is_some_and(|add| {
            add(ctx.as_ptr(), Some(on_job::<J>), ptr::null_mut(), None) == raw::REDISMODULE_OK as i32
        })
    }
}

//! A one-shot timer.

use std::ffi::c_void;
use std::ptr;

use redis_module::raw;

use super::Context;
use super::guard::guarded;
use super::present::present;

/// Redis 7.0 counts the microseconds until its next timer in an int when one has fired: a later one than this
/// (33 minutes) would make it look for timers without a pause.
const LONGEST: u64 = 2_000_000;

/// What happens when a timer fires.
pub trait Alarm {
    /// Called once, outside any command.
    fn ring(ctx: Context<'_>);
}

/// A timer that was started, and may have fired since.
#[derive(Debug)]
pub struct Timer(raw::RedisModuleTimerID);

impl Timer {
    /// Starts a timer that fires in `delay` milliseconds, within the resolution of the server's event loop, or
    /// after 33 minutes where that is earlier.
    pub fn start<A: Alarm>(ctx: Context<'_>, delay: u64) -> Self {
        unsafe extern "C" fn on_timer<A: Alarm>(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
            // SAFETY: the server passes the context of this callback.
            guarded(|| A::ring(unsafe { Context::new(ctx) }));
        }
        let delay = delay.min(LONGEST).cast_signed();
        // SAFETY: Presence, Liveness; the callback takes no data.
        Self(unsafe {
            let create = present(raw::RedisModule_CreateTimer);
            create(ctx.as_ptr(), delay, Some(on_timer::<A>), ptr::null_mut())
        })
    }

    /// Stops it, if it has not fired.
    pub fn stop(self, ctx: Context<'_>) {
        // SAFETY: Presence, Liveness; the server looks the id up, and knows whether it still stands.
        unsafe { present(raw::RedisModule_StopTimer)(ctx.as_ptr(), self.0, ptr::null_mut()) };
    }
}

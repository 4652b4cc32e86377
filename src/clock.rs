//! The clocks of the machine.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use crate::lock::Reading;

/// A clock that no one can step, in microseconds. It goes on while the machine is suspended, where there is such a
/// clock: leases then end for everybody else, too.
pub fn boot_time_us() -> u64 {
    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let now = clock_gettime(CLOCK);
    now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1000
}

/// The wall clock as it is now, in microseconds since the Unix epoch. Within a command, the server's own stands
/// still.
pub fn wall_clock_us() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_micros() as i64,
        Err(before) => -(before.duration().as_micros() as i64),
    }
}

/// Reads both, the clock that no one can step from `started_us` on.
pub fn read(started_us: u64) -> Reading {
    let before_us = boot_time_us().saturating_sub(started_us);
    let wall_us = wall_clock_us();
    Reading { before_us, wall_us, after_us: boot_time_us().saturating_sub(started_us) }
}

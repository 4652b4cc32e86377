//! The memory that a server uses.

use std::thread;
use std::time::{Duration, Instant};

use redis::Connection;

use crate::line::info;

/// Memory counts as settled when it has not moved for this long: a server takes back the buffers
/// of a connection two seconds after its last command.
const SETTLED: Duration = Duration::from_millis(2_500);

/// A few hundred bytes always come and go.
const COMES_AND_GOES: u64 = 4_096;

/// The most that is waited for it.
const PATIENCE: Duration = Duration::from_secs(100);

/// Bytes in use, by the server's account.
pub fn used(connection: &mut Connection) -> anyhow::Result<u64> {
    info(connection, "memory", "used_memory")
}

/// The bytes in use when nothing moves any more.
pub fn settled(connection: &mut Connection) -> anyhow::Result<u64> {
    // What a module's waiters were given goes back by ten pieces a tick, ten ticks a second.
    set_hz(connection, "500")?;
    let deadline = Instant::now() + PATIENCE;
    let mut bytes = used(connection)?;
    let mut since = Instant::now();
    while since.elapsed() < SETTLED && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(50));
        let now = used(connection)?;
        if now.abs_diff(bytes) > COMES_AND_GOES {
            (bytes, since) = (now, Instant::now());
        }
    }
    set_hz(connection, "10")?;
    Ok(bytes)
}

fn set_hz(connection: &mut Connection, hz: &str) -> anyhow::Result<()> {
    Ok(redis::cmd("CONFIG").arg(&["SET", "hz", hz]).exec(connection)?)
}

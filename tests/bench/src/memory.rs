//! The memory that a server uses.

use std::thread;
use std::time::{Duration, Instant};

use redis::Connection;

use crate::line::info;

/// Memory counts as settled when it has not moved for this long: a server takes back the buffers
/// of a connection two seconds after its last command, in a round that takes another one.
const SETTLED: Duration = Duration::from_millis(3_500);

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
    Ok(bytes)
}

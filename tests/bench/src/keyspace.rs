//! Keys that have nothing to do with locks.

use redis_lock_testkit::Server;

use crate::raw::{Batch, RawConnection, Reply};

/// Adds keys that expire long after the benchmark.
pub fn fill(server: &Server, keys: usize) -> anyhow::Result<()> {
    let mut batch = Batch::pipelined();
    for index in 0..keys {
        let life = (3_600_000 + index).to_string();
        batch.push(&["SET", &format!("other:{index:08}"), "v", "PX", &life], Reply::Ok);
    }
    RawConnection::open(server.port())?.send(&batch)
}

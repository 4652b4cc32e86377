//! A server that has nothing to do does nothing.

use std::time::Duration;

use redis::Connection;
use redis_lock_testkit::eventually;

use crate::helpers::*;

/// The CPU that the server has used so far, in milliseconds.
fn cpu_ms(con: &mut Connection) -> f64 {
    let info: String = call(con, "INFO cpu");
    let seconds = |field: &str| -> f64 {
        let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {field} in {info}"))
    };
    1000.0 * (seconds("used_cpu_user") + seconds("used_cpu_sys"))
}

/// Redis 7.0 spins when a timer has fired and the next one is more than 35 minutes away.
#[test]
fn a_lease_that_ends_much_later_costs_nothing_until_then() {
    for ttl in [2_147_000, 2_148_000, 3_600_000, 86_400_000] {
        let (_server, mut con) = start();
        acquire(&mut con, "long", "me", ttl);
        acquire(&mut con, "short", "me", 20);
        eventually(Duration::from_secs(20), || {
            (info_field(&mut con, "lock", "lock_expired") == 1).then_some(())
        });
        let before = cpu_ms(&mut con);
        sleep_until(now_ms() + 400);
        let used = cpu_ms(&mut con) - before;
        assert!(used < 200.0, "{used} ms of CPU in 400 ms, with a lease of {ttl} ms");
    }
}

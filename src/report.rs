//! `INFO lock`.

use crate::node;
use crate::server::{InfoSection, InfoSource};

/// The source of the section.
pub struct LockInfo;

impl InfoSource for LockInfo {
    fn fill(section: InfoSection<'_>) {
        // In a crash report the state may be borrowed by whoever crashed.
        node::try_with(|node| {
            let metrics = &node.metrics;
            section.number(c"granted", metrics.granted);
            section.number(c"denied", metrics.denied);
            section.number(c"reentered", metrics.reentered);
            section.number(c"renewed", metrics.renewed);
            section.number(c"released", metrics.released);
            section.number(c"expired", metrics.expired);
            section.number(c"forced", metrics.forced);
            section.number(c"vanished", metrics.vanished);
            section.number(c"held", node.leases.len() as u64);
            section.number(c"keys_lost", node.leases.lost_keys() as u64);
            section.number(c"keys_put_back", metrics.put_back);
            section.number(c"clock_steps", metrics.clock_steps);
            section.number(c"grace_period_msec", node.grace_period.length(node.now()));
            section.number(c"grace_left_msec", node.grace_left().unwrap_or(0));
            let waits_ms = node.lines.oldest().map_or(0, |since| node.now().since(since));
            section.number(c"waiting", node.lines.waiting() as u64);
            section.number(c"handed_over", metrics.handed_over);
            section.number(c"wait_timed_out", metrics.wait_timed_out);
            section.number(c"wait_gone", metrics.wait_gone);
            section.number(c"wait_withdrawn", metrics.wait_withdrawn);
            section.number(c"longest_wait_msec", metrics.longest_wait_ms.max(waits_ms));
            section.number(c"expiry_lateness_p50_usec", metrics.lateness(0.50));
            section.number(c"expiry_lateness_p99_usec", metrics.lateness(0.99));
            section.number(c"expiry_lateness_max_usec", metrics.lateness(1.0));
            section.number(c"token", node.tokens.last());
        });
    }
}

//! The grammar of `BLOCK`, and what is refused before anybody waits.

use redis::cmd;

use super::waiter::*;
use crate::helpers::*;

#[test]
fn the_longest_time_to_wait_is_a_number_of_53_bits() {
    let (server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    let mut bob = Waiter::join(&server, &format!("LOCK.ACQUIRE lock bob 60000 BLOCK {MAX_NUMBER}"));
    release(&mut con, "lock", "me");
    bob.assert_has_lock(&mut con, "bob");
}

#[test]
fn a_time_to_wait_that_is_no_number_in_range_is_refused() {
    let (_server, mut con) = start();
    acquire(&mut con, "held", "me", 30_000);
    let before = Snapshot::take(&mut con);
    for key in ["held", "free"] {
        for timeout in
            ["-1", "x", "1.5", "1e3", "9007199254740992", "9223372036854775808", "-9223372036854775809"]
        {
            let refused = refusal(&mut con, &format!("LOCK.ACQUIRE {key} you 30000 BLOCK {timeout}"));
            assert!(refused.starts_with("ERR BLOCK must be "), "{key} {timeout}: {refused}");
        }
        for empty in ["", " 1", "1 "] {
            let refused = refusal_of(
                &mut con,
                cmd("LOCK.ACQUIRE").arg(key).arg("you").arg(30_000).arg("BLOCK").arg(empty),
            );
            assert!(refused.starts_with("ERR BLOCK must be "), "{key} {empty:?}: {refused}");
        }
    }
    assert_eq!(Snapshot::take(&mut con), before);
}

#[test]
fn block_without_a_value_or_twice_or_elsewhere_is_a_syntax_error() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    let before = Snapshot::take(&mut con);
    for line in [
        "LOCK.ACQUIRE lock you 30000 BLOCK",
        "LOCK.ACQUIRE free you 30000 BLOCK",
        "LOCK.ACQUIRE lock you 30000 HOLDS 1 BLOCK",
        "LOCK.ACQUIRE lock you 30000 BLOCK 0 BLOCK 0",
        "LOCK.ACQUIRE lock you 30000 BLOCK 0 HOLDS 1 block 1",
        "LOCK.ACQUIRE lock you 30000 WAIT 0",
        "LOCK.ACQUIRE lock you 30000 BLOCK 0 0",
        "LOCK.RENEW lock me 30000 BLOCK 0",
        "LOCK.RELEASE lock me BLOCK 0",
    ] {
        let refused = refusal(&mut con, line);
        assert!(refused.starts_with("ERR syntax error"), "{line}: {refused}");
    }
    assert_eq!(Snapshot::take(&mut con), before);
}

#[test]
fn what_is_refused_anyway_does_not_wait() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    run(&mut con, "SET string 1");
    run(&mut con, "HSET hash name Ann");
    let before = Snapshot::take(&mut con);
    for (line, error) in [
        ("LOCK.ACQUIRE string you 30000 BLOCK 0", "WRONGTYPE "),
        ("LOCK.ACQUIRE hash you 30000 BLOCK 0", "WRONGTYPE "),
        ("LOCK.ACQUIRE lock mode 30000 BLOCK 0", "BADOWNER "),
        ("LOCK.ACQUIRE lock you 0 BLOCK 0", "ERR ttl "),
        ("LOCK.ACQUIRE lock you 30000 HOLDS 0 BLOCK 0", "ERR HOLDS "),
        ("LOCK.ACQUIRE lock you 30000 TOKEN 9007199254740991 BLOCK 0", "BADTOKEN "),
    ] {
        let refused = refusal(&mut con, line);
        assert!(refused.starts_with(error), "{line}: {refused}");
    }
    assert_eq!(Snapshot::take(&mut con), before);
    assert_eq!(info_field(&mut con, "lock", "lock_waiting"), 0);
}

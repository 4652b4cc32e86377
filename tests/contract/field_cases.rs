//! What went wrong in other lock services, one test each.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redis::{Connection, cmd};
use redis_lock_testkit::eventually;

use crate::helpers::*;
use crate::listener::Listener;

#[test]
fn a_retried_acquire_is_not_counted_twice() {
    let (_server, mut con) = start();
    acquire_with(&mut con, "lock", "me", 30_000, "HOLDS 1");
    acquire_with(&mut con, "lock", "me", 30_000, "HOLDS 1");
    assert_eq!(release(&mut con, "lock", "me"), Some(0));
    assert_eq!(call::<i64>(&mut con, "EXISTS lock"), 0);
}

#[test]
fn a_nested_shorter_lease_does_not_cut_the_outer_one() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 60_000);
    acquire(&mut con, "lock", "me", 1_000);
    assert_lease(pttl(&mut con, "lock"), 60_000);
}

#[test]
fn a_partial_release_does_not_reset_the_lease() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    acquire(&mut con, "lock", "me", 300_000);
    release(&mut con, "lock", "me");
    assert_lease(pttl(&mut con, "lock"), 300_000);
}

/// Two owners, each with a short hold of its own, meet at the end of the other's lease.
#[test]
fn a_re_entry_at_the_instant_of_expiry_makes_no_second_holder() {
    const ROUNDS: usize = 10_000;
    const LANES: usize = 100;
    let (server, mut con) = start();
    let mut rival = server.connect();
    for round in 0..ROUNDS / LANES {
        let mut takes = redis::pipe();
        for lane in 0..LANES {
            takes.cmd("LOCK.ACQUIRE").arg(format!("lock-{lane}")).arg("a").arg(1 + lane % 3);
        }
        takes.exec(&mut con).unwrap();
        // The leases end somewhere in the middle of these, and each lock is asked for by both.
        let ask = |owner: &'static str| {
            let mut asks = redis::pipe();
            for lane in 0..LANES {
                asks.cmd("LOCK.ACQUIRE").arg(format!("lock-{lane}")).arg(owner).arg(5_000);
            }
            asks
        };
        let (asked_by_a, asked_by_b) = (ask("a"), ask("b"));
        let (by_a, by_b): (Vec<Vec<i64>>, Vec<Vec<i64>>) = thread::scope(|scope| {
            let rival = scope.spawn(|| asked_by_b.query(&mut rival).unwrap());
            (asked_by_a.query(&mut con).unwrap(), rival.join().unwrap())
        });
        for lane in 0..LANES {
            let key = format!("lock-{lane}");
            let holders = usize::from(by_a[lane][0] > 0) + usize::from(by_b[lane][0] > 0);
            let fields = hash(&mut con, &key);
            assert_eq!(holders, 1, "round {round}, {key}: {fields:?}");
            let holder = if by_a[lane][0] > 0 { "a" } else { "b" };
            assert!(fields.contains_key(holder), "round {round}, {key}: {fields:?}");
            assert_eq!(fields.len(), 2, "round {round}, {key}: {fields:?}");
            assert_eq!(force_release(&mut con, &key), 1);
        }
    }
}

#[test]
fn a_data_key_used_as_a_lock_stays_data() {
    let (_server, mut con) = start();
    run(&mut con, "SET string 1");
    run(&mut con, "RPUSH list 1");
    run(&mut con, "HSET hash name Ann");
    let before = Snapshot::take(&mut con);
    for key in ["string", "list", "hash"] {
        for line in ["LOCK.ACQUIRE KEY me 30000", "LOCK.RELEASE KEY me", "LOCK.FORCERELEASE KEY"] {
            let refused = refusal(&mut con, &line.replace("KEY", key));
            assert!(refused.starts_with("WRONGTYPE "), "{key}: {refused}");
        }
    }
    assert_eq!(Snapshot::take(&mut con), before);
}

#[test]
fn no_helper_key_lies_outside_the_users_prefix() {
    let (server, mut admin) = start();
    run(
        &mut admin,
        "ACL SETUSER app on >secret resetchannels ~app:* -@all +lock.acquire +lock.renew +lock.release +lock.info +lock.forcerelease",
    );
    let mut con = server.connect();
    run(&mut con, "AUTH app secret");
    acquire_with(&mut con, "app:lock", "me", 30_000, "HOLDS 2 TOKEN 5");
    acquire(&mut con, "app:lock", "you", 30_000);
    renew(&mut con, "app:lock", "me", 60_000);
    release(&mut con, "app:lock", "me");
    info(&mut con, "app:lock");
    assert_eq!(call::<Vec<String>>(&mut admin, "KEYS *"), ["app:lock"]);
    assert_eq!(force_release(&mut con, "app:lock"), 1);
    assert_eq!(call::<i64>(&mut admin, "DBSIZE"), 0);
}

#[test]
fn users_without_scripts_can_lock() {
    let (server, mut admin) = start();
    run(&mut admin, "ACL SETUSER app on >secret ~* +@all -@scripting");
    let mut con = server.connect();
    run(&mut con, "AUTH app secret");
    assert!(refusal_of(&mut con, cmd("EVAL").arg("return 1").arg(0)).starts_with("NOPERM "));
    acquire(&mut con, "lock", "me", 30_000);
    assert_eq!(renew(&mut con, "lock", "me", 60_000), 1);
    assert_eq!(release(&mut con, "lock", "me"), Some(0));
}

#[test]
fn a_release_of_an_absent_lock_does_not_look_like_success() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    assert_eq!(release(&mut con, "lock", "me"), None);
    assert_eq!(listener.heard(), []);
}

#[test]
fn a_ttl_of_0_or_below_or_beyond_64_bits_is_an_error() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    let before = Snapshot::take(&mut con);
    for ttl in ["0", "-1", "-30000", "9223372036854775808", "18446744073709551616", "1e9"] {
        for line in [
            format!("LOCK.ACQUIRE lock me {ttl}"),
            format!("LOCK.ACQUIRE free me {ttl}"),
            format!("LOCK.RENEW lock me {ttl}"),
        ] {
            let refused = refusal(&mut con, &line);
            assert!(refused.starts_with("ERR ") && refused.contains("ttl"), "{line}: {refused}");
        }
    }
    assert_eq!(Snapshot::take(&mut con), before);
}

#[test]
fn a_renewal_revives_neither_an_expired_lock_nor_anothers() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "a", 30);
    sleep_until(now_ms() + 40);
    assert_eq!(renew(&mut con, "lock", "a", 30_000), 0);
    acquire(&mut con, "lock", "b", 30_000);
    let end: i64 = call(&mut con, "PEXPIRETIME lock");
    assert_eq!(renew(&mut con, "lock", "a", 60_000), 0);
    assert_eq!(call::<i64>(&mut con, "PEXPIRETIME lock"), end);
}

/// Takes and releases many locks once each.
fn use_once(con: &mut Connection, locks: std::ops::Range<u32>) -> i64 {
    let mut last = 0;
    for chunk in (locks.start..locks.end).step_by(1_000) {
        let mut pipe = redis::pipe();
        for number in chunk..chunk + 1_000 {
            let key = format!("lock-{number}");
            pipe.cmd("LOCK.ACQUIRE").arg(&key).arg("me").arg(60_000);
            pipe.cmd("LOCK.RELEASE").arg(&key).arg("me").ignore();
        }
        let granted: Vec<Vec<i64>> = pipe.query(con).unwrap();
        for reply in granted {
            assert!(reply[0] == 1 && reply[2] > last, "{reply:?} after {last}");
            last = reply[2];
        }
    }
    last
}

#[test]
fn locks_used_once_leave_nothing_behind() {
    let (_server, mut con) = start();
    use_once(&mut con, 0..10_000);
    let before = info_field(&mut con, "memory", "used_memory");
    use_once(&mut con, 10_000..110_000);
    assert_eq!(call::<i64>(&mut con, "DBSIZE"), 0);
    assert_eq!(info_field(&mut con, "lock", "lock_held"), 0);
    let after = info_field(&mut con, "memory", "used_memory");
    assert!(after - before < 1_000_000, "{} bytes are left", after - before);
}

#[test]
fn the_memory_of_many_locks_held_at_once_comes_back() {
    const LOCKS: i64 = 100_000;
    let (_server, mut con) = start();
    use_once(&mut con, 0..1_000);
    let before = info_field(&mut con, "memory", "used_memory");
    for chunk in 0..LOCKS / 1_000 {
        let mut pipe = redis::pipe();
        for number in 0..1_000 {
            pipe.cmd("LOCK.ACQUIRE").arg(format!("lock-{chunk}-{number}")).arg("me").arg(600_000).ignore();
        }
        pipe.exec(&mut con).unwrap();
    }
    assert_eq!(info_field(&mut con, "lock", "lock_held"), LOCKS);
    run(&mut con, "FLUSHALL");
    assert_eq!(info_field(&mut con, "lock", "lock_held"), 0);
    eventually(Duration::from_secs(10), || {
        let left = info_field(&mut con, "memory", "used_memory") - before;
        (left < 3_000_000).then_some(())
    });
}

#[test]
fn two_owners_never_hold_one_lock_at_one_time() {
    let (server, mut con) = start();
    let stop = AtomicBool::new(false);
    let inside = AtomicBool::new(false);
    thread::scope(|scope| {
        for owner in 0..4 {
            let (server, stop, inside) = (&server, &stop, &inside);
            scope.spawn(move || {
                let mut con = server.connect();
                while !stop.load(Ordering::Relaxed) {
                    if acquire(&mut con, "lock", owner, 60_000).holds == 1 {
                        assert!(!inside.swap(true, Ordering::SeqCst), "two are inside");
                        inside.store(false, Ordering::SeqCst);
                        assert_eq!(release(&mut con, "lock", owner), Some(0));
                    }
                }
            });
        }
        thread::sleep(Duration::from_millis(500));
        stop.store(true, Ordering::Relaxed);
    });
    assert_free(&mut con, "lock");
}

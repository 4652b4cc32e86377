//! A Redisson `RLock` on the same name excludes and is excluded. Its scripts, rewritten here.

use redis::{Cmd, Connection, cmd};

use crate::helpers::*;
use crate::listener::{Listener, Message, channel};

const ONE: &str = "8743c9c0-0795-4907-87fd-6c719a6b4586:1";
const TWO: &str = "b983c153-7421-469a-addb-44fb92259a1b:42";

fn eval(script: &str, keys: &[&str], args: &[&str]) -> Cmd {
    cmd("EVAL").arg(script).arg(keys.len()).arg(keys).arg(args).to_owned()
}

/// Nothing when it was granted, else the lease that is left.
#[track_caller]
fn their_lock(con: &mut Connection, owner: &str, lease: i64) -> Option<i64> {
    let script = "\
        local free = redis.call('exists', KEYS[1]) == 0
        if free or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
            redis.call('hincrby', KEYS[1], ARGV[2], 1)
            redis.call('pexpire', KEYS[1], ARGV[1])
            return nil
        end
        return redis.call('pttl', KEYS[1])";
    eval(script, &["lock"], &[&lease.to_string(), owner]).query(con).unwrap()
}

/// 1 when the lock is free, 0 when holds are left, nothing when `owner` holds none.
#[track_caller]
fn their_unlock(con: &mut Connection, owner: &str) -> Option<i64> {
    let script = "\
        local answered = redis.call('get', KEYS[3])
        if answered then return tonumber(answered) end
        if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
        local freed = 0
        if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
            redis.call('pexpire', KEYS[1], ARGV[2])
        else
            redis.call('del', KEYS[1])
            redis.call(ARGV[4], KEYS[2], ARGV[1])
            freed = 1
        end
        redis.call('set', KEYS[3], freed, 'px', ARGV[5])
        return freed";
    let latch = "redisson_unlock_latch:{lock}:0123456789abcdef0123456789abcdef";
    let keys = ["lock", &channel("lock"), latch];
    let answer = eval(script, &keys, &["0", "30000", owner, "publish", "20000"]).query(con).unwrap();
    run(con, &format!("DEL {latch}"));
    answer
}

/// Whether `owner` held the lock.
#[track_caller]
fn their_renewal(con: &mut Connection, owner: &str, lease: i64) -> bool {
    let script = "\
        if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return 0 end
        redis.call('pexpire', KEYS[1], ARGV[1])
        return 1";
    eval(script, &["lock"], &[&lease.to_string(), owner]).query(con).unwrap()
}

#[test]
fn their_lock_excludes_us_and_has_no_token() {
    let (_server, mut con) = start();
    assert_eq!(their_lock(&mut con, ONE, 30_000), None);
    let denied = acquire(&mut con, "lock", TWO, 30_000);
    assert_eq!((denied.holds, denied.token), (0, 0));
    assert_lease(denied.ttl, 30_000);
    assert_eq!(acquire(&mut con, "lock", "me", 30_000).holds, 0);
    assert_eq!(renew(&mut con, "lock", TWO, 60_000), 0);
    assert_eq!(release(&mut con, "lock", TWO), None);
    let held = info(&mut con, "lock");
    assert!(held.is_held_by(ONE));
    assert_eq!((held.holds, held.token), (1, 0));
    assert_eq!(their_unlock(&mut con, ONE), Some(1));
    assert_eq!(acquire(&mut con, "lock", TWO, 30_000).holds, 1);
}

#[test]
fn our_lock_excludes_them() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    assert_lease(their_lock(&mut con, ONE, 30_000).expect("denied"), 30_000);
    assert_eq!(their_unlock(&mut con, ONE), None);
    assert!(!their_renewal(&mut con, ONE, 60_000));
    release(&mut con, "lock", "me");
    assert_eq!(their_lock(&mut con, ONE, 30_000), None);
}

#[test]
fn one_owner_may_hold_through_both() {
    let (_server, mut con) = start();
    their_lock(&mut con, ONE, 30_000);
    let again = acquire(&mut con, "lock", ONE, 30_000);
    assert_eq!((again.holds, again.token), (2, 0));
    their_lock(&mut con, ONE, 30_000);
    assert_eq!(release(&mut con, "lock", ONE), Some(2));
    assert_eq!(their_unlock(&mut con, ONE), Some(0));
    assert_eq!(renew(&mut con, "lock", ONE, 60_000), 1);
    assert_lease(pttl(&mut con, "lock"), 60_000);
    assert_eq!(release(&mut con, "lock", ONE), Some(0));
    assert_free(&mut con, "lock");
}

#[test]
fn our_hold_may_be_counted_renewed_and_released_by_them() {
    let (_server, mut con) = start();
    let token = acquire(&mut con, "lock", ONE, 30_000).token;
    assert_eq!(their_lock(&mut con, ONE, 30_000), None);
    assert!(their_renewal(&mut con, ONE, 60_000));
    let held = info(&mut con, "lock");
    assert_eq!((held.holds, held.token), (2, token));
    assert_lease(held.ttl, 60_000);
    assert_eq!(their_unlock(&mut con, ONE), Some(0));
    assert_eq!(their_unlock(&mut con, ONE), Some(1));
    assert_free(&mut con, "lock");
}

#[test]
fn a_token_may_be_asked_for_their_hold() {
    let (_server, mut con) = start();
    their_lock(&mut con, ONE, 30_000);
    let asked = now_us() + 60_000_000;
    let raised = acquire_with(&mut con, "lock", ONE, 30_000, &format!("HOLDS 1 TOKEN {asked}"));
    assert_eq!((raised.holds, raised.token), (1, asked));
    assert_eq!(acquire(&mut con, "lock", "me", 30_000).token, asked);
}

#[test]
fn our_release_wakes_their_waiters() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    their_lock(&mut con, ONE, 30_000);
    assert_eq!(release(&mut con, "lock", ONE), Some(0));
    assert_eq!(listener.heard(), [Message::unlock("lock")]);
    their_lock(&mut con, ONE, 30_000);
    assert_eq!(force_release(&mut con, "lock"), 1);
    assert_eq!(listener.heard(), [Message::unlock("lock")]);
}

#[test]
fn their_unlock_of_our_hold_is_published_once_or_twice() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    acquire(&mut con, "lock", ONE, 30_000);
    assert_eq!(their_unlock(&mut con, ONE), Some(1));
    let heard = listener.heard();
    assert!((1..=2).contains(&heard.len()), "{heard:?}");
    assert!(heard.iter().all(|message| *message == Message::unlock("lock")), "{heard:?}");
    assert_eq!(info_field(&mut con, "lock", "lock_held"), 0);
}

#[test]
fn their_renewal_of_our_hold_moves_the_end_of_the_lease() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    acquire(&mut con, "lock", ONE, 100);
    their_renewal(&mut con, ONE, 300);
    let end: i64 = call(&mut con, "PEXPIRETIME lock");
    assert_eq!(listener.next(), Message::unlock("lock"));
    assert!(now_ms() >= end);
    assert_eq!(listener.heard(), []);
}

#[test]
fn a_hold_of_theirs_renewed_through_us_ends_on_time() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    their_lock(&mut con, ONE, 50);
    renew(&mut con, "lock", ONE, 200);
    let end: i64 = call(&mut con, "PEXPIRETIME lock");
    assert_eq!(listener.next(), Message::unlock("lock"));
    let late = now_ms() - end;
    assert!((0..SLACK_MS).contains(&late), "{late} ms late");
}

#[test]
fn their_read_write_lock_is_held_by_somebody_else_for_everybody() {
    for (mode, owner) in [("read", ONE.to_owned()), ("write", format!("{ONE}:write"))] {
        let (_server, mut con) = start();
        run(&mut con, &format!("HSET lock mode {mode} {owner} 1"));
        run(&mut con, "PEXPIRE lock 30000");
        for caller in [ONE, TWO, "me"] {
            let denied = acquire(&mut con, "lock", caller, 60_000);
            assert_eq!((denied.holds, denied.token), (0, 0), "{mode}: {caller}");
            assert_eq!(renew(&mut con, "lock", caller, 60_000), 0);
            assert_eq!(release(&mut con, "lock", caller), None);
        }
        let held = info(&mut con, "lock");
        assert!(held.is_held_by(&owner), "{held:?}");
        assert_lease(pttl(&mut con, "lock"), 30_000);
        assert_eq!(force_release(&mut con, "lock"), 1);
        assert_free(&mut con, "lock");
    }
}

#[test]
fn a_reentry_that_changes_no_lease_puts_redissons_lock_on_record() {
    const OWNER: &str = "8743c9c0-0795-4907-87fd-6c719a6b4586:1";
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    run(&mut con, &format!("HSET lock {OWNER} 1"));
    run(&mut con, "PEXPIRE lock 300");
    assert_eq!(acquire(&mut con, "lock", OWNER, 10).holds, 2);
    assert_eq!(info_field(&mut con, "lock", "lock_held"), 1);
    assert_eq!(listener.next(), Message::unlock("lock"));
}

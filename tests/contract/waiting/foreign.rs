//! A lock that something else than ours frees or overwrites is handed over, or its line is told.

use redis::{Connection, cmd};

use super::waiter::*;
use crate::helpers::*;
use crate::listener::{Listener, Message};

/// Asserts that these lines, which free `lock`, hand it to the first in line, and that nothing is published.
#[track_caller]
fn assert_hand_over(lines: &[&str]) {
    let (server, mut con, [mut bob, mut carol]) = start_line(["bob", "carol"]);
    let mut listener = Listener::on(&server);
    lines.iter().for_each(|line| run(&mut con, line));
    // Valkey 8.1 leaves a client in the database where a module was last told of an event.
    run(&mut con, "SELECT 0");
    bob.assert_has_lock(&mut con, "bob");
    assert_eq!(line(&mut con), ["carol"], "{lines:?}");
    assert_held(&mut con, "lock", "bob");
    release(&mut con, "lock", "bob");
    carol.assert_has_lock(&mut con, "carol");
    bob.assert_in_step();
    assert_eq!(listener.heard(), [], "{lines:?}");
    release(&mut con, "lock", "carol");
    assert_eq!(listener.heard(), [Message::unlock("lock")], "{lines:?}");
    server.assert_alive();
}

#[test]
fn del_hands_over() {
    assert_hand_over(&["DEL lock"]);
}

#[test]
fn unlink_hands_over() {
    assert_hand_over(&["UNLINK lock"]);
}

#[test]
fn hdel_of_all_fields_hands_over() {
    assert_hand_over(&["HDEL lock me lock:token"]);
}

#[test]
fn an_expire_in_the_past_hands_over() {
    for line in ["PEXPIRE lock -1", "EXPIRE lock 0", "EXPIREAT lock 1", "PEXPIREAT lock 1"] {
        assert_hand_over(&[line]);
    }
}

#[test]
fn a_flush_hands_over() {
    for line in ["FLUSHDB", "FLUSHDB ASYNC", "FLUSHDB SYNC", "FLUSHALL", "FLUSHALL ASYNC", "FLUSHALL SYNC"] {
        assert_hand_over(&[line]);
    }
}

#[test]
fn a_flush_from_another_database_hands_over() {
    assert_hand_over(&["SELECT 5", "FLUSHALL"]);
}

#[test]
fn rename_away_hands_over() {
    assert_hand_over(&["RENAME lock away"]);
}

#[test]
fn move_to_another_database_hands_over() {
    assert_hand_over(&["MOVE lock 1"]);
}

#[test]
fn swapdb_hands_over() {
    assert_hand_over(&["SWAPDB 0 1"]);
}

#[test]
fn del_in_a_transaction_hands_over() {
    assert_hand_over(&["MULTI", "DEL lock", "INCR counter", "EXEC"]);
}

#[test]
fn del_in_a_script_hands_over() {
    let (_server, mut con, [mut bob, _carol]) = start_line(["bob", "carol"]);
    let script = "return redis.call('DEL', KEYS[1])";
    assert_eq!(cmd("EVAL").arg(script).arg(1).arg("lock").query(&mut con), Ok(1));
    bob.assert_has_lock(&mut con, "bob");
    assert_eq!(line(&mut con), ["carol"]);
}

#[test]
fn getdel_frees_nothing() {
    let (_server, mut con, [_bob]) = start_line(["bob"]);
    assert!(refusal(&mut con, "GETDEL lock").starts_with("WRONGTYPE "));
    assert_held(&mut con, "lock", "me");
    assert_eq!(line(&mut con), ["bob"]);
}

/// A hash without its owner's field is a free lock, and whoever asks for it finds the line served.
#[test]
fn hdel_of_the_owner_hands_over_when_somebody_asks() {
    let (_server, mut con, [mut bob]) = start_line(["bob"]);
    run(&mut con, "HDEL lock me");
    let denied = acquire(&mut con, "lock", "you", 30_000);
    assert_eq!((denied.holds, denied.ttl), (0, WAITERS_TTL));
    bob.assert_has_lock(&mut con, "bob");
}

#[test]
fn hdel_of_the_owner_hands_over_at_the_end_of_the_lease() {
    let (_server, mut con, [mut bob]) = start_line_behind(300, ["bob"]);
    run(&mut con, "HDEL lock me");
    bob.assert_has_lock(&mut con, "bob");
}

#[test]
fn a_lock_renamed_over_it_is_waited_for_instead() {
    let (_server, mut con, [mut bob]) = start_line(["bob"]);
    acquire(&mut con, "other", "you", 30_000);
    run(&mut con, "RENAME other lock");
    assert_held(&mut con, "lock", "you");
    assert_eq!(line(&mut con), ["bob"]);
    release(&mut con, "lock", "you");
    bob.assert_has_lock(&mut con, "bob");
}

#[test]
fn a_lock_copied_or_restored_over_it_is_waited_for_instead() {
    let (_server, mut con, [mut bob]) = start_line(["bob"]);
    acquire(&mut con, "other", "you", 30_000);
    run(&mut con, "COPY other lock REPLACE");
    assert_held(&mut con, "lock", "you");
    assert_eq!(line(&mut con), ["bob"]);
    let dump: Vec<u8> = call(&mut con, "DUMP other");
    cmd("RESTORE").arg("lock").arg(300).arg(dump).arg("REPLACE").exec(&mut con).unwrap();
    assert_held(&mut con, "lock", "you");
    assert_eq!(line(&mut con), ["bob"]);
    bob.assert_has_lock(&mut con, "bob");
}

#[test]
fn a_lock_that_is_renamed_away_and_back_is_waited_for_still() {
    let (_server, mut con, [mut bob]) = start_line(["bob"]);
    for line in ["MULTI", "RENAME lock away", "RENAME away lock", "EXEC"] {
        run(&mut con, line);
    }
    assert_held(&mut con, "lock", "me");
    assert_eq!(line(&mut con), ["bob"]);
    release(&mut con, "lock", "me");
    bob.assert_has_lock(&mut con, "bob");
}

#[test]
fn a_lock_that_comes_with_a_swapped_database_is_waited_for_instead() {
    let (_server, mut con, [mut bob]) = start_line(["bob"]);
    run(&mut con, "SELECT 1");
    acquire(&mut con, "lock", "you", 30_000);
    run(&mut con, "SWAPDB 0 1");
    run(&mut con, "SELECT 0");
    assert_held(&mut con, "lock", "you");
    assert_eq!(line(&mut con), ["bob"]);
    release(&mut con, "lock", "you");
    bob.assert_has_lock(&mut con, "bob");
    run(&mut con, "SELECT 1");
    assert_held(&mut con, "lock", "me");
}

#[test]
fn a_line_stays_in_its_database_when_its_lock_moves() {
    let (_server, mut con, [mut bob]) = start_line(["bob"]);
    run(&mut con, "MOVE lock 1");
    run(&mut con, "SELECT 1");
    assert_held(&mut con, "lock", "me");
    assert_eq!(line(&mut con), Vec::<String>::new());
    release(&mut con, "lock", "me");
    assert_free(&mut con, "lock");
    run(&mut con, "SELECT 0");
    bob.assert_has_lock(&mut con, "bob");
}

/// Asserts that what `replace` puts at the key gets everybody in line the error that an acquire would get, and
/// that the unlock is published, once.
#[track_caller]
fn assert_refuses_line(replace: impl FnOnce(&mut Connection)) {
    let (server, mut con, mut waiters) = start_line(["bob", "carol", "bob"]);
    run(&mut con, "SET string 1");
    run(&mut con, "SADD set a");
    let mut listener = Listener::on(&server);
    replace(&mut con);
    for waiter in &mut waiters {
        let error = waiter.error();
        assert!(error.starts_with("WRONGTYPE "), "{error}");
        waiter.assert_in_step();
    }
    assert_eq!(info_field(&mut con, "lock", "lock_waiting"), 0);
    assert_eq!(info_field(&mut con, "lock", "lock_handed_over"), 0);
    assert_eq!(listener.heard(), [Message::unlock("lock")]);
    run(&mut con, "DEL lock");
    assert_free(&mut con, "lock");
}

#[test]
fn set_over_it_refuses_the_line() {
    assert_refuses_line(|con| run(con, "SET lock 1"));
}

/// Some of these types have clients of the server's own commands wait for them.
#[test]
fn another_type_in_its_place_refuses_the_line() {
    for put in ["SADD lock a", "RPUSH lock a", "ZADD lock 1 a", "XADD lock * a b"] {
        assert_refuses_line(|con| {
            ["MULTI", "DEL lock", put, "EXEC"].iter().for_each(|line| run(con, line));
        });
    }
}

#[test]
fn a_string_renamed_over_it_refuses_the_line() {
    assert_refuses_line(|con| run(con, "RENAME string lock"));
}

#[test]
fn a_string_copied_over_it_refuses_the_line() {
    assert_refuses_line(|con| run(con, "COPY string lock REPLACE"));
}

#[test]
fn a_string_restored_over_it_refuses_the_line() {
    assert_refuses_line(|con| {
        let dump: Vec<u8> = call(con, "DUMP string");
        cmd("RESTORE").arg("lock").arg(0).arg(dump).arg("REPLACE").exec(con).unwrap();
    });
}

#[test]
fn somebodys_hash_in_its_place_refuses_the_line() {
    assert_refuses_line(|con| {
        ["MULTI", "DEL lock", "HSET lock name Ann", "EXEC"].iter().for_each(|line| run(con, line));
    });
}

#[test]
fn a_string_that_comes_with_a_swapped_database_refuses_the_line() {
    assert_refuses_line(|con| {
        ["SELECT 1", "SET lock 1", "SWAPDB 0 1", "SELECT 0"].iter().for_each(|line| run(con, line));
    });
}

/// Not every server tells a module of each command that writes over a key.
#[test]
fn a_line_whose_lock_was_overwritten_unnoticed_is_refused_by_the_end_of_the_lease() {
    let (_server, mut con, [mut bob]) = start_line_behind(300, ["bob"]);
    run(&mut con, "SADD set a");
    run(&mut con, "SUNIONSTORE lock set");
    assert!(bob.error().starts_with("WRONGTYPE "));
    assert_eq!(info_field(&mut con, "lock", "lock_waiting"), 0);
}

#[test]
fn a_flush_serves_every_line_in_every_database() {
    let (server, mut con) = start();
    let mut waiters = Vec::new();
    for db in 0..3 {
        run(&mut con, &format!("SELECT {db}"));
        for name in ["a", "b"] {
            acquire(&mut con, name, "me", 30_000);
            let mut waiter = Waiter::connect(&server);
            waiter.send(&[&format!("SELECT {db}"), &format!("LOCK.ACQUIRE {name} bob 60000 BLOCK 0")]);
            waiter.reply().unwrap();
            waiters.push(waiter);
        }
    }
    await_waiting(&mut con, 6);
    run(&mut con, "FLUSHALL");
    for waiter in &mut waiters {
        assert_eq!(waiter.granted().holds, 1);
        waiter.assert_in_step();
    }
    for db in 0..3 {
        run(&mut con, &format!("SELECT {db}"));
        for name in ["a", "b"] {
            assert_held(&mut con, name, "bob");
        }
    }
}

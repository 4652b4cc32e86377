//! Keys that other commands remove, move and overwrite.

use redis::cmd;
use redis_lock_testkit::{Builder, Server};

use crate::helpers::*;
use crate::listener::{Listener, Message};

/// `lock` is taken, `lines` are run, and then the lock is free and one unlock was published.
#[track_caller]
fn assert_frees(lines: &[&str]) {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    acquire_with(&mut con, "lock", "me", 30_000, "HOLDS 2");
    lines.iter().for_each(|line| run(&mut con, line));
    assert_eq!(listener.heard(), [Message::unlock("lock")], "{lines:?}");
    assert_free(&mut con, "lock");
    assert_eq!(info_field(&mut con, "lock", "lock_released"), 0);
    assert_eq!(acquire(&mut con, "lock", "you", 30_000).holds, 1, "{lines:?}");
    server.assert_alive();
}

/// `lock` is taken, `lines` are run, and then something else is at its key; one unlock was published.
#[track_caller]
fn assert_replaces(lines: &[&str]) {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    run(&mut con, "SET string 1");
    acquire(&mut con, "lock", "me", 30_000);
    lines.iter().for_each(|line| run(&mut con, line));
    assert_eq!(listener.heard(), [Message::unlock("lock")], "{lines:?}");
    let refused = refusal(&mut con, "LOCK.ACQUIRE lock you 30000");
    assert!(refused.starts_with("WRONGTYPE "), "{lines:?}: {refused}");
    server.assert_alive();
}

#[test]
fn del_frees() {
    assert_frees(&["DEL lock"]);
}

#[test]
fn unlink_frees() {
    assert_frees(&["UNLINK lock"]);
}

#[test]
fn hdel_of_all_fields_frees() {
    assert_frees(&["HDEL lock me lock:token"]);
}

#[test]
fn an_expire_in_the_past_frees() {
    assert_frees(&["EXPIRE lock -1"]);
    assert_frees(&["PEXPIREAT lock 1"]);
}

#[test]
fn flushdb_frees() {
    assert_frees(&["FLUSHDB"]);
    assert_frees(&["FLUSHDB ASYNC"]);
}

#[test]
fn flushall_frees() {
    assert_frees(&["SELECT 5", "FLUSHALL", "SELECT 0"]);
    assert_frees(&["FLUSHALL ASYNC"]);
}

#[test]
fn flushdb_of_another_database_frees_nothing() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    acquire(&mut con, "lock", "me", 30_000);
    run(&mut con, "SELECT 5");
    run(&mut con, "FLUSHDB");
    run(&mut con, "SELECT 0");
    assert_eq!(listener.heard(), []);
    assert_held(&mut con, "lock", "me");
}

#[test]
fn a_flush_publishes_one_unlock_for_each_lock() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    run(&mut con, "SET data 1");
    for number in 0..100 {
        acquire(&mut con, format!("lock-{number}"), "me", 30_000);
    }
    run(&mut con, "FLUSHALL");
    let mut heard: Vec<_> = listener.heard().into_iter().map(|message| message.channel).collect();
    heard.sort_unstable();
    heard.dedup();
    assert_eq!(heard.len(), 100);
    assert_eq!(info_field(&mut con, "lock", "lock_held"), 0);
    assert_eq!(info_field(&mut con, "lock", "lock_vanished"), 100);
}

#[test]
fn set_over_a_lock_replaces_it() {
    assert_replaces(&["SET lock 1"]);
    assert_replaces(&["SUNIONSTORE lock no-such-set", "SET lock 1"]);
}

#[test]
fn rename_and_copy_over_a_lock_replace_it() {
    assert_replaces(&["RENAME string lock"]);
    assert_replaces(&["COPY string lock REPLACE"]);
}

#[test]
fn restore_over_a_lock_replaces_it() {
    let (server, mut con) = start();
    run(&mut con, "SET string 1");
    let dump: Vec<u8> = call(&mut con, "DUMP string");
    acquire(&mut con, "lock", "me", 30_000);
    let mut listener = Listener::on(&server);
    cmd("RESTORE").arg("lock").arg(0).arg(dump).arg("REPLACE").exec(&mut con).unwrap();
    assert_eq!(listener.heard(), [Message::unlock("lock")]);
    assert!(refusal(&mut con, "LOCK.ACQUIRE lock you 30000").starts_with("WRONGTYPE "));
}

#[test]
fn a_lock_restored_over_a_lock_is_that_lock() {
    let (_server, mut con) = start();
    acquire(&mut con, "source", "you", 30_000);
    acquire(&mut con, "lock", "me", 30_000);
    let dump: Vec<u8> = call(&mut con, "DUMP source");
    cmd("RESTORE").arg("lock").arg(30_000).arg(dump).arg("REPLACE").exec(&mut con).unwrap();
    assert_held(&mut con, "lock", "you");
}

#[test]
fn a_renamed_lock_is_free_under_the_old_name_and_held_under_the_new() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    acquire(&mut con, "lock", "me", 30_000);
    run(&mut con, "RENAME lock renamed");
    assert_eq!(listener.heard(), [Message::unlock("lock")]);
    assert_free(&mut con, "lock");
    assert_held(&mut con, "renamed", "me");
    assert_eq!(renew(&mut con, "renamed", "me", 60_000), 1);
    assert_eq!(release(&mut con, "renamed", "me"), Some(0));
    assert_eq!(listener.heard(), [Message::unlock("renamed")]);
}

#[test]
fn a_renamed_lock_is_published_at_the_end_of_its_lease_under_its_new_name() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    acquire(&mut con, "lock", "me", 200);
    run(&mut con, "RENAME lock renamed");
    assert_eq!(listener.next(), Message::unlock("lock"));
    assert_eq!(listener.next(), Message::unlock("renamed"));
    assert_eq!(listener.heard(), []);
}

#[test]
fn a_lock_renamed_over_a_lock_frees_both_names_and_holds_the_second() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    acquire(&mut con, "lock", "me", 30_000);
    acquire(&mut con, "other", "you", 30_000);
    run(&mut con, "RENAME lock other");
    let heard = listener.heard();
    assert!(heard.contains(&Message::unlock("lock")), "{heard:?}");
    assert_free(&mut con, "lock");
    assert_held(&mut con, "other", "me");
}

#[test]
fn a_copied_lock_is_held_twice() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    acquire(&mut con, "lock", "me", 30_000);
    run(&mut con, "COPY lock copy");
    assert_eq!(listener.heard(), []);
    assert_held(&mut con, "lock", "me");
    assert_held(&mut con, "copy", "me");
    release(&mut con, "lock", "me");
    assert_held(&mut con, "copy", "me");
}

#[test]
fn a_moved_lock_is_free_here_and_held_there() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    acquire(&mut con, "lock", "me", 30_000);
    run(&mut con, "MOVE lock 1");
    // Valkey 8.1 leaves a client in the database where a module was last told of an event.
    run(&mut con, "SELECT 0");
    assert_eq!(listener.heard(), [Message::unlock("lock")]);
    assert_free(&mut con, "lock");
    run(&mut con, "SELECT 1");
    assert_held(&mut con, "lock", "me");
}

#[test]
fn a_moved_lock_is_published_at_the_end_of_its_lease() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    acquire(&mut con, "lock", "me", 200);
    run(&mut con, "MOVE lock 1");
    assert_eq!(listener.next(), Message::unlock("lock"));
    assert_eq!(listener.next(), Message::unlock("lock"));
    assert_eq!(listener.heard(), []);
}

#[test]
fn swapped_databases_swap_their_locks() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    acquire(&mut con, "here", "me", 30_000);
    run(&mut con, "SELECT 1");
    acquire(&mut con, "there", "you", 30_000);
    run(&mut con, "SWAPDB 0 1");
    assert_held(&mut con, "here", "me");
    assert_free(&mut con, "there");
    run(&mut con, "SELECT 0");
    assert_held(&mut con, "there", "you");
    assert_free(&mut con, "here");
    let heard = listener.heard();
    assert!(heard.contains(&Message::unlock("here")), "{heard:?}");
    assert!(heard.contains(&Message::unlock("there")), "{heard:?}");
    assert_eq!(heard.len(), 2);
}

#[test]
fn a_swapped_lock_is_published_at_the_end_of_its_lease() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    acquire(&mut con, "lock", "me", 200);
    run(&mut con, "SWAPDB 0 1");
    assert_eq!(listener.next(), Message::unlock("lock"));
    assert_eq!(listener.next(), Message::unlock("lock"));
    assert_eq!(listener.heard(), []);
    assert_eq!(info_field(&mut con, "lock", "lock_held"), 0);
}

#[test]
fn a_lock_held_in_both_swapped_databases_stays_held() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    run(&mut con, "SELECT 1");
    acquire(&mut con, "lock", "you", 30_000);
    run(&mut con, "SWAPDB 0 1");
    assert_held(&mut con, "lock", "me");
    run(&mut con, "SELECT 0");
    assert_held(&mut con, "lock", "you");
}

/// A lock is the same, and nothing was published, after the dataset was read anew.
fn assert_survives(builder: Builder, reload: &str) {
    let server = builder.start();
    let mut con = server.connect();
    let mut listener = Listener::on(&server);
    let token = acquire_with(&mut con, "lock", "me", 30_000, "HOLDS 2").token;
    run(&mut con, reload);
    assert_held(&mut con, "lock", "me");
    assert_eq!(info(&mut con, "lock").token, token);
    assert_eq!(listener.heard(), [], "{reload}");
    run(&mut con, "PEXPIRE lock 50");
    assert_eq!(listener.next(), Message::unlock("lock"));
}

#[test]
fn a_reload_of_the_dataset_keeps_the_lock_and_publishes_nothing() {
    assert_survives(Server::with_module(), "DEBUG RELOAD");
    assert_survives(Server::with_module().config("appendonly", "yes"), "DEBUG LOADAOF");
}

#[test]
fn renaming_there_and_back_keeps_the_lock() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    run(&mut con, "RENAME lock away");
    run(&mut con, "RENAME away lock");
    assert_held(&mut con, "lock", "me");
    assert_eq!(info_field(&mut con, "lock", "lock_held"), 1);
}

#[test]
fn a_lock_that_vanishes_inside_a_transaction_and_is_taken_again_stays_held() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    redis::pipe()
        .atomic()
        .cmd("DEL")
        .arg("lock")
        .cmd("LOCK.ACQUIRE")
        .arg(&["lock", "you", "30000"])
        .exec(&mut con)
        .unwrap();
    assert_held(&mut con, "lock", "you");
    assert_eq!(info_field(&mut con, "lock", "lock_held"), 1);
}

/// Not all of these tell a module of old servers that they have written over a key.
#[test]
fn a_lock_overwritten_by_any_command_is_published_by_the_end_of_its_lease() {
    for line in [
        "SUNIONSTORE lock set",
        "ZUNIONSTORE lock 1 zset",
        "SORT list STORE lock",
        "BITOP NOT lock string",
        "GEOSEARCHSTORE lock geo FROMLONLAT 15 37 BYRADIUS 200 km",
    ] {
        let (server, mut con) = start();
        for data in
            ["SADD set a", "ZADD zset 1 a", "RPUSH list 1 2", "SET string 1", "GEOADD geo 15 37 Catania"]
        {
            run(&mut con, data);
        }
        let mut listener = Listener::on(&server);
        acquire(&mut con, "lock", "me", 200);
        run(&mut con, line);
        assert_eq!(listener.next(), Message::unlock("lock"), "{line}");
        assert_eq!(listener.heard(), [], "{line}");
        assert_eq!(info_field(&mut con, "lock", "lock_held"), 0, "{line}");
    }
}

//! What is propagated: the effect, in absolute time, and nothing where nothing changed.

use redis::cmd;
use redis_lock_testkit::{Server, eventually};
use std::time::Duration;

use crate::helpers::*;
use crate::listener::channel;
use crate::replicas::{await_replicas, start_replica};
use crate::stream::{Propagated, Stream, append_only_file};

/// A server with the module, a connection and the replication stream.
fn start_with_stream() -> (Server, redis::Connection, Stream) {
    let (server, con) = start();
    let stream = Stream::attach(&server);
    (server, con, stream)
}

fn words(line: &str) -> Propagated {
    line.split(' ').map(str::to_owned).collect()
}

/// The commands on the data: without the unlock's PUBLISH, and the bounds of a transaction that
/// holds a single command besides it.
fn on_data(commands: Vec<Propagated>) -> Vec<Propagated> {
    let mut kept: Vec<_> = commands.into_iter().filter(|command| command[0] != "PUBLISH").collect();
    if kept.len() == 3 && kept[0] == ["MULTI"] {
        kept = vec![kept.swap_remove(1)];
    }
    kept
}

/// Asserts that `command` sets the lease of `lock` to end `ttl` from now, in absolute time.
#[track_caller]
fn assert_sets_lease(command: &Propagated, ttl: i64) {
    let [name, key, end] = command.as_slice() else { panic!("{command:?}") };
    assert_eq!((name.as_str(), key.as_str()), ("PEXPIREAT", "lock"));
    assert_lease(end.parse::<i64>().expect("a time") - now_ms(), ttl);
}

#[track_caller]
fn assert_first_hold(commands: &[Propagated], owner: &str, token: i64, ttl: i64) {
    let [hold, lease] = commands else { panic!("{commands:?}") };
    assert_eq!(*hold, words(&format!("HSET lock {owner} 1 {TOKEN_FIELD} {token}")));
    assert_sets_lease(lease, ttl);
}

/// What is between MULTI and EXEC.
#[track_caller]
fn in_one_transaction(commands: &[Propagated]) -> &[Propagated] {
    match commands {
        [multi, inner @ .., exec] if *multi == ["MULTI"] && *exec == ["EXEC"] => inner,
        other => panic!("not one transaction: {other:?}"),
    }
}

/// Is it one command that removes `lock`?
fn is_removal(commands: &[Propagated]) -> bool {
    commands == [words("DEL lock")] || commands == [words("UNLINK lock")]
}

#[test]
fn a_first_hold_is_an_hset_and_a_pexpireat_in_one_transaction() {
    let (_server, mut con, mut stream) = start_with_stream();
    let token = acquire(&mut con, "lock", "me", 30_000).token;
    let commands = stream.propagated(&mut con);
    assert_first_hold(in_one_transaction(&commands), "me", token, 30_000);
}

#[test]
fn a_re_entry_is_an_hset_of_the_count() {
    let (_server, mut con, mut stream) = start_with_stream();
    acquire(&mut con, "lock", "me", 30_000);
    stream.propagated(&mut con);
    acquire(&mut con, "lock", "me", 1_000);
    assert_eq!(stream.propagated(&mut con), [words("HSET lock me 2")]);
}

#[test]
fn a_re_entry_that_lengthens_the_lease_sets_it_in_the_same_transaction() {
    let (_server, mut con, mut stream) = start_with_stream();
    acquire(&mut con, "lock", "me", 30_000);
    stream.propagated(&mut con);
    acquire(&mut con, "lock", "me", 60_000);
    let commands = stream.propagated(&mut con);
    let [hold, lease] = in_one_transaction(&commands) else { panic!("{commands:?}") };
    assert_eq!(*hold, words("HSET lock me 2"));
    assert_sets_lease(lease, 60_000);
}

#[test]
fn a_raised_token_is_an_hset_of_the_token() {
    let (_server, mut con, mut stream) = start_with_stream();
    acquire(&mut con, "lock", "me", 30_000);
    stream.propagated(&mut con);
    let token = now_us() + 60_000_000;
    acquire_with(&mut con, "lock", "me", 1_000, &format!("HOLDS 1 TOKEN {token}"));
    assert_eq!(stream.propagated(&mut con), [words(&format!("HSET lock {TOKEN_FIELD} {token}"))]);
}

#[test]
fn a_renewal_is_a_pexpireat() {
    let (_server, mut con, mut stream) = start_with_stream();
    acquire(&mut con, "lock", "me", 30_000);
    stream.propagated(&mut con);
    renew(&mut con, "lock", "me", 60_000);
    let commands = stream.propagated(&mut con);
    assert_eq!(commands.len(), 1, "{commands:?}");
    assert_sets_lease(&commands[0], 60_000);
}

#[test]
fn a_partial_release_is_an_hset_of_the_count() {
    let (_server, mut con, mut stream) = start_with_stream();
    acquire_with(&mut con, "lock", "me", 30_000, "HOLDS 5");
    stream.propagated(&mut con);
    release(&mut con, "lock", "me");
    release_to(&mut con, "lock", "me", 2);
    assert_eq!(stream.propagated(&mut con), [words("HSET lock me 4"), words("HSET lock me 2")]);
}

#[test]
fn the_last_release_and_a_forced_one_are_a_del() {
    let (_server, mut con, mut stream) = start_with_stream();
    for line in ["LOCK.RELEASE lock me", "LOCK.RELEASE lock me HOLDS 0", "LOCK.FORCERELEASE lock"] {
        acquire(&mut con, "lock", "me", 30_000);
        stream.propagated(&mut con);
        run(&mut con, line);
        assert_eq!(on_data(stream.propagated(&mut con)), [words("DEL lock")], "{line}");
    }
}

/// Both in one transaction: whoever hears of the unlock on a replica finds the lock free there.
#[test]
fn a_release_and_its_unlock_reach_replicas_together() {
    let (_server, mut con, mut stream) = start_with_stream();
    for line in ["LOCK.RELEASE lock me", "LOCK.FORCERELEASE lock"] {
        acquire(&mut con, "lock", "me", 30_000);
        stream.propagated(&mut con);
        run(&mut con, line);
        let commands = stream.propagated(&mut con);
        assert_eq!(in_one_transaction(&commands), [words("DEL lock"), unlock("lock")], "{line}");
    }
}

/// What the server does to the key comes first, then the unlock, once: the module propagates nothing while the
/// server is at work.
#[test]
fn replicas_are_told_once_of_a_lock_that_something_else_frees() {
    let (_server, mut con, mut stream) = start_with_stream();
    for (line, ttl) in [("DEL lock", 30_000), ("UNLINK lock", 30_000), ("PING", 20)] {
        acquire(&mut con, "lock", "me", ttl);
        stream.propagated(&mut con);
        run(&mut con, line);
        let mut commands = Vec::new();
        eventually(Duration::from_secs(10), || {
            commands.extend(stream.propagated(&mut con));
            commands.contains(&unlock("lock")).then_some(())
        });
        let (told, removed): (Vec<_>, Vec<_>) =
            on_data(commands.clone()).into_iter().partition(|command| command[0] == "PUBLISH");
        assert!(is_removal(&removed), "{line}: {removed:?}");
        assert!(told.is_empty() || told == [unlock("lock")], "{line}: {told:?}");
        assert_eq!(commands.iter().filter(|command| **command == unlock("lock")).count(), 1, "{line}");
        let last = commands.iter().rfind(|command| command[0] != "EXEC");
        assert_eq!(last, Some(&unlock("lock")), "{line}: {commands:?}");
    }
}

/// A command that only reads may be what makes the server reap an expired lock.
#[test]
fn a_read_that_finds_an_expired_lock_is_not_propagated() {
    let (_server, mut con, mut stream) = start_with_stream();
    run(&mut con, "DEBUG SET-ACTIVE-EXPIRE 0");
    for read in ["EXISTS", "TTL", "TYPE", "LOCK.INFO"] {
        acquire(&mut con, "lock", "me", 20);
        stream.propagated(&mut con);
        let mut pipe = redis::pipe();
        // The timer has no chance to come first.
        pipe.cmd("DEBUG").arg(&["SLEEP", "0.05"]).cmd(read).arg("lock").exec(&mut con).unwrap();
        let mut commands = Vec::new();
        eventually(Duration::from_secs(10), || {
            commands.extend(stream.propagated(&mut con));
            commands.contains(&unlock("lock")).then_some(())
        });
        assert!(commands.iter().all(|command| command[0] != read), "{commands:?}");
    }
}

/// The message that tells a replica's subscribers of an unlock.
fn unlock(name: &str) -> Vec<String> {
    vec!["PUBLISH".to_owned(), channel(name), "0".to_owned()]
}

#[test]
fn the_end_of_a_lease_is_one_del() {
    let (_server, mut con, mut stream) = start_with_stream();
    acquire(&mut con, "lock", "me", 50);
    stream.propagated(&mut con);
    eventually(Duration::from_secs(10), || (call::<i64>(&mut con, "DBSIZE") == 1).then_some(()));
    let removed = on_data(stream.propagated(&mut con));
    assert!(is_removal(&removed), "{removed:?}");
}

#[test]
fn what_changes_nothing_propagates_nothing() {
    let (_server, mut con, mut stream) = start_with_stream();
    acquire(&mut con, "lock", "me", 30_000);
    stream.propagated(&mut con);
    let before = Snapshot::take(&mut con);
    acquire(&mut con, "lock", "you", 60_000);
    acquire_with(&mut con, "lock", "you", 60_000, "HOLDS 2 TOKEN 17");
    acquire_with(&mut con, "lock", "me", 1_000, "HOLDS 1");
    acquire_with(&mut con, "lock", "me", 1_000, "HOLDS 1 TOKEN 17");
    renew(&mut con, "lock", "you", 60_000);
    renew(&mut con, "lock", "me", 1_000);
    renew(&mut con, "free", "me", 60_000);
    release(&mut con, "lock", "you");
    release(&mut con, "free", "me");
    release_to(&mut con, "lock", "me", 1);
    force_release(&mut con, "free");
    info(&mut con, "lock");
    refusal(&mut con, "LOCK.ACQUIRE lock me 0");
    assert_eq!(Snapshot::take(&mut con), before);
    assert_eq!(stream.propagated(&mut con), Vec::<Propagated>::new());
}

#[test]
fn a_lock_that_ran_out_is_deleted_before_it_is_granted_anew_in_one_transaction() {
    let (_server, mut con, mut stream) = start_with_stream();
    run(&mut con, "DEBUG SET-ACTIVE-EXPIRE 0");
    run(&mut con, "HSET lock 8743c9c0-0795-4907-87fd-6c719a6b4586:1 1");
    run(&mut con, "PEXPIRE lock 20");
    stream.propagated(&mut con);
    sleep_until(now_ms() + 30);
    let token = acquire(&mut con, "lock", "me", 30_000).token;
    let commands = stream.propagated(&mut con);
    let (removed, grant) = in_one_transaction(&commands).split_at(1);
    assert!(is_removal(removed), "{removed:?}");
    let grant: Vec<_> = grant.iter().filter(|command| command[0] != "PUBLISH").cloned().collect();
    assert_first_hold(&grant, "me", token, 30_000);
}

#[test]
fn a_transaction_of_the_client_stays_one_transaction() {
    let (_server, mut con, mut stream) = start_with_stream();
    let (granted, _, _): (Vec<i64>, i64, i64) = redis::pipe()
        .atomic()
        .cmd("LOCK.ACQUIRE")
        .arg(&["lock", "me", "30000"])
        .cmd("LOCK.RENEW")
        .arg(&["lock", "me", "60000"])
        .cmd("INCR")
        .arg("counter")
        .query(&mut con)
        .unwrap();
    let commands = stream.propagated(&mut con);
    let inner = in_one_transaction(&commands);
    assert_first_hold(&inner[..2], "me", granted[2], 30_000);
    assert_sets_lease(&inner[2], 60_000);
    assert_eq!(inner[3..], [words("INCR counter")]);
}

#[test]
fn a_script_propagates_effects_too() {
    let (_server, mut con, mut stream) = start_with_stream();
    let script = "redis.call('INCR', 'counter') return redis.call('LOCK.ACQUIRE', KEYS[1], 'me', 30000)";
    let granted: Vec<i64> = cmd("EVAL").arg(script).arg(1).arg("lock").query(&mut con).unwrap();
    let commands = stream.propagated(&mut con);
    let inner = in_one_transaction(&commands);
    assert_eq!(inner[0], words("INCR counter"));
    assert_first_hold(&inner[1..], "me", granted[2], 30_000);
}

#[test]
fn locks_are_propagated_in_their_own_database() {
    let (server, mut con) = start();
    let replica = start_replica(&server, Server::with_module());
    run(&mut con, "SELECT 3");
    acquire(&mut con, "lock", "me", 1_000);
    run(&mut con, "SELECT 0");
    await_replicas(&mut con, 1);
    let mut there = replica.connect();
    run(&mut there, "SELECT 3");
    assert!(info(&mut there, "lock").is_held_by("me"));
    eventually(Duration::from_secs(10), || (call::<i64>(&mut there, "DBSIZE") == 0).then_some(()));
}

#[test]
fn the_aof_holds_the_same_commands_and_no_publish() {
    let server = Server::with_module().config("appendonly", "yes").config("appendfsync", "always").start();
    let mut con = server.connect();
    let token = acquire(&mut con, "lock", "me", 30_000).token;
    acquire(&mut con, "lock", "you", 30_000);
    renew(&mut con, "lock", "me", 60_000);
    release(&mut con, "lock", "you");
    release(&mut con, "lock", "me");
    let script =
        "redis.call('LOCK.ACQUIRE', KEYS[1], 'me', 9) return redis.call('LOCK.RELEASE', KEYS[1], 'me')";
    cmd("EVAL").arg(script).arg(1).arg("scripted").exec(&mut con).unwrap();
    let commands = append_only_file(server.dir());
    assert_first_hold(in_one_transaction(&commands[..4]), "me", token, 30_000);
    assert_sets_lease(&commands[4], 60_000);
    assert_eq!(commands[5], words("DEL lock"));
    let scripted: Vec<_> = commands[6..].iter().map(|command| command[0].as_str()).collect();
    assert_eq!(scripted, ["MULTI", "HSET", "PEXPIREAT", "DEL", "EXEC"]);
}

//! What a handoff propagates: the removal and the next hold, in one transaction and in absolute time.

use redis::Connection;
use redis_lock_testkit::{Flavor, Server};

use super::waiter::*;
use crate::helpers::*;
use crate::replicas::{await_replicas, start_replica};
use crate::stream::{Propagated, Stream, append_only_file};

/// A line behind `me`, and what is propagated from now on.
fn start_with_stream<const N: usize>(owners: [&str; N]) -> (Server, Connection, Stream, [Waiter; N]) {
    let (server, mut con, waiters) = start_line(owners);
    let mut stream = Stream::attach(&server);
    stream.propagated(&mut con);
    (server, con, stream, waiters)
}

/// The commands between MULTI and EXEC, which are all that there is.
#[track_caller]
fn in_one_transaction(commands: &[Propagated]) -> &[Propagated] {
    match commands {
        [multi, inner @ .., exec] if *multi == ["MULTI"] && *exec == ["EXEC"] => {
            assert!(!inner.contains(multi), "more than one transaction: {commands:?}");
            inner
        }
        other => panic!("not one transaction: {other:?}"),
    }
}

/// Asserts that these remove `lock` and give it to `owner`, in this order, and do nothing else.
#[track_caller]
fn assert_handoff(commands: &[Propagated], owner: &str, granted: Acquired) {
    let [removal, hold, lease] = commands else { panic!("{commands:?}") };
    assert!(*removal == ["DEL", "lock"] || *removal == ["UNLINK", "lock"], "{commands:?}");
    assert_eq!(hold.join(" "), format!("HSET lock {owner} 1 {TOKEN_FIELD} {}", granted.token));
    assert_eq!(lease[..2], ["PEXPIREAT", "lock"]);
    assert_lease(lease[2].parse::<i64>().expect("a time") - now_ms(), WAITERS_TTL);
}

#[test]
fn a_release_that_hands_over_is_one_transaction() {
    for line in ["LOCK.RELEASE lock me", "LOCK.RELEASE lock me HOLDS 0", "LOCK.FORCERELEASE lock"] {
        let (_server, mut con, mut stream, [mut bob, _carol]) = start_with_stream(["bob", "carol"]);
        run(&mut con, line);
        let granted = bob.granted();
        assert_handoff(in_one_transaction(&stream.propagated(&mut con)), "bob", granted);
    }
}

/// Redis 7.0 can't do the same when its own reaper comes first.
#[test]
fn the_end_of_a_lease_that_hands_over_is_one_transaction() {
    let (_server, mut con, mut stream, [mut bob, _carol]) = start_with_stream(["bob", "carol"]);
    run(&mut con, "DEBUG SET-ACTIVE-EXPIRE 0");
    run(&mut con, "PEXPIRE lock 100");
    stream.propagated(&mut con);
    let granted = bob.granted();
    assert_handoff(in_one_transaction(&stream.propagated(&mut con)), "bob", granted);
}

#[test]
fn a_deletion_that_hands_over_is_followed_by_the_grant() {
    for line in ["DEL lock", "UNLINK lock"] {
        let (server, mut con, mut stream, [mut bob, _carol]) = start_with_stream(["bob", "carol"]);
        run(&mut con, line);
        let granted = bob.granted();
        let commands = stream.propagated(&mut con);
        if server.version().at_least(Flavor::Redis, 7, 2) {
            assert_handoff(in_one_transaction(&commands), "bob", granted);
        } else {
            let bounds = |command: &Propagated| *command == ["MULTI"] || *command == ["EXEC"];
            let inner: Vec<_> = commands.iter().filter(|command| !bounds(command)).cloned().collect();
            assert_handoff(&inner, "bob", granted);
        }
    }
}

/// Whatever follows in the same write finds the grant, and comes after it on replicas too.
#[test]
fn a_grant_comes_before_what_the_new_owner_does() {
    let (_server, mut con, mut stream, [mut bob, _carol]) = start_with_stream(["bob", "carol"]);
    at_once(&mut con, &["DEL lock", "LOCK.ACQUIRE lock you 30000", "SET next 1"]);
    bob.granted();
    let commands = stream.propagated(&mut con);
    let place = |word: &str| commands.iter().position(|command| command[0] == word).expect(word);
    assert!(place("DEL") < place("HSET"), "{commands:?}");
    assert!(place("HSET") < place("PEXPIREAT"), "{commands:?}");
    assert!(place("PEXPIREAT") < place("SET"), "{commands:?}");
    assert!(commands.iter().all(|command| !command.contains(&"you".to_owned())), "{commands:?}");
}

#[test]
fn an_expired_lock_found_by_a_stranger_is_handed_over_in_one_transaction() {
    let (_server, mut con, mut stream, [mut bob, _carol]) = start_with_stream(["bob", "carol"]);
    run(&mut con, "PEXPIRE lock 100");
    stream.propagated(&mut con);
    at_once(&mut con, &["DEBUG SLEEP 0.2", "LOCK.ACQUIRE lock you 30000"]);
    let granted = bob.granted();
    assert_handoff(in_one_transaction(&stream.propagated(&mut con)), "bob", granted);
}

#[test]
fn a_re_entry_from_the_line_is_part_of_the_grant() {
    let (_server, mut con, mut stream, [mut one, mut two, _carol]) =
        start_with_stream(["bob", "bob", "carol"]);
    run(&mut con, "LOCK.RELEASE lock me");
    let granted = one.granted();
    assert_eq!(two.granted().holds, 2);
    let commands = stream.propagated(&mut con);
    let (handoff, again) = in_one_transaction(&commands).split_at(3);
    assert_handoff(handoff, "bob", granted);
    assert_eq!(again[0].join(" "), "HSET lock bob 2");
    assert!(again[1..].iter().all(|command| command[0] == "PEXPIREAT"), "{commands:?}");
}

#[test]
fn who_waits_and_who_leaves_propagates_nothing() {
    let (server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    let mut stream = Stream::attach(&server);
    stream.propagated(&mut con);
    let before = Snapshot::take(&mut con);
    let mut late = Waiter::join(&server, "LOCK.ACQUIRE lock late 60000 BLOCK 100");
    late.denied();
    let closed = Waiter::join_for(&server, "closed");
    let mut unblocked = Waiter::join_for(&server, "unblocked");
    let mut withdrawn = Waiter::join(&server, "LOCK.ACQUIRE lock withdrawn 60000 HOLDS 3 TOKEN 1 BLOCK 0");
    drop(closed);
    run(&mut con, &format!("CLIENT UNBLOCK {} ERROR", unblocked.id));
    run(&mut con, "LOCK.RELEASE lock withdrawn HOLDS 0");
    assert!(unblocked.error().starts_with("UNBLOCKED "));
    withdrawn.denied();
    await_line(&mut con, &[]);
    assert_eq!(Snapshot::take(&mut con), before);
    assert_eq!(stream.propagated(&mut con), Vec::<Propagated>::new());
}

#[test]
fn a_grant_that_is_passed_on_leaves_replicas_with_the_last_owner() {
    let (server, mut con, [bob, mut carol]) = start_line(["bob", "carol"]);
    let replica = start_replica(&server, Server::without_module());
    at_once(&mut con, &["LOCK.RELEASE lock me", &format!("CLIENT KILL ID {}", bob.id)]);
    carol.assert_has_lock(&mut con, "carol");
    assert_same_lock(&mut con, &mut replica.connect());
}

/// Asserts that a replica has the same lock, to the millisecond of its end.
#[track_caller]
fn assert_same_lock(con: &mut Connection, there: &mut Connection) {
    await_replicas(con, 1);
    assert_eq!(hash(there, "lock"), hash(con, "lock"));
    let end: i64 = call(con, "PEXPIRETIME lock");
    assert_eq!(call::<i64>(there, "PEXPIRETIME lock"), end);
}

#[test]
fn a_replica_follows_each_handoff() {
    for builder in [Server::with_module(), Server::without_module()] {
        let (server, mut con, [mut bob, mut carol, mut dave, mut erin]) =
            start_line(["bob", "carol", "dave", "erin"]);
        let replica = start_replica(&server, builder);
        let mut there = replica.connect();
        let steps = [
            (&mut bob, "bob", "LOCK.RELEASE lock me"),
            (&mut carol, "carol", "PEXPIRE lock 50"),
            (&mut dave, "dave", "DEL lock"),
            (&mut erin, "erin", "FLUSHALL"),
        ];
        for (waiter, owner, free) in steps {
            run(&mut con, free);
            waiter.assert_has_lock(&mut con, owner);
            assert_same_lock(&mut con, &mut there);
        }
        run(&mut con, "LOCK.RELEASE lock erin");
        await_replicas(&mut con, 1);
        assert_eq!(call::<i64>(&mut there, "EXISTS lock"), 0);
    }
}

#[test]
fn the_aof_holds_the_handoff_and_a_restart_its_holder() {
    let mut server =
        Server::with_module().config("appendonly", "yes").config("appendfsync", "always").start();
    let mut con = server.connect();
    let [mut bob, mut carol] = form_line(&server, &mut con, 30_000, ["bob", "carol"]);
    let before = append_only_file(server.dir()).len();
    run(&mut con, "LOCK.RELEASE lock me");
    let granted = bob.granted();
    let handed_over = append_only_file(server.dir());
    assert_handoff(in_one_transaction(&handed_over[before..]), "bob", granted);
    run(&mut con, "DEL lock");
    let granted = carol.granted();
    let (fields, end) = (hash(&mut con, "lock"), call::<i64>(&mut con, "PEXPIRETIME lock"));
    server.kill();
    server.restart();
    let mut con = server.connect();
    assert_eq!(hash(&mut con, "lock"), fields);
    assert_eq!(call::<i64>(&mut con, "PEXPIRETIME lock"), end);
    assert_held(&mut con, "lock", "carol");
    assert_eq!(info(&mut con, "lock").token, granted.token);
    assert_eq!(line(&mut con), Vec::<String>::new());
}

//! The setting `max-waiters`.

use redis::Connection;
use redis_lock_testkit::Server;

use super::waiter::*;
use crate::helpers::*;

#[track_caller]
fn max_waiters(con: &mut Connection) -> String {
    let (name, value): (String, String) = call(con, "CONFIG GET lock.max-waiters");
    assert_eq!(name, "lock.max-waiters");
    value
}

#[test]
fn a_hundred_thousand_may_wait_by_default() {
    let (_server, mut con) = start();
    assert_eq!(max_waiters(&mut con), "100000");
}

#[test]
fn one_too_many_is_refused_whatever_it_waits_for() {
    let server = Server::with_module().module_arg("max-waiters", "2").start();
    let mut con = server.connect();
    let [mut bob, carol] = form_line(&server, &mut con, 30_000, ["bob", "carol"]);
    acquire(&mut con, "other", "me", 30_000);
    let before = Snapshot::take(&mut con);
    for key in ["lock", "other"] {
        let refused = refusal(&mut con, &format!("LOCK.ACQUIRE {key} dave 60000 BLOCK 0"));
        assert!(refused.starts_with("LINEFULL "), "{key}: {refused}");
        assert_eq!(acquire(&mut con, key, "dave", 60_000).holds, 0, "who does not wait is just denied");
    }
    assert_eq!(Snapshot::take(&mut con), before);
    assert_eq!(acquire_with(&mut con, "free", "dave", 60_000, "BLOCK 0").holds, 1);
    assert_eq!(acquire_with(&mut con, "lock", "me", 60_000, "BLOCK 0 HOLDS 1").holds, 1);
    assert_eq!(line(&mut con), ["bob", "carol"]);
    drop(carol);
    await_line(&mut con, &["bob"]);
    let mut erin = Waiter::join_for(&server, "erin");
    release(&mut con, "lock", "me");
    bob.assert_has_lock(&mut con, "bob");
    release(&mut con, "lock", "bob");
    erin.assert_has_lock(&mut con, "erin");
}

#[test]
fn who_may_not_wait_anyway_is_denied_even_where_the_line_is_full() {
    let server = Server::with_module().module_arg("max-waiters", "1").start();
    let mut con = server.connect();
    let [_bob] = form_line(&server, &mut con, 30_000, ["bob"]);
    let (reply,): (redis::Value,) = redis::pipe()
        .atomic()
        .add_command(command("LOCK.ACQUIRE lock dave 60000 BLOCK 0"))
        .query(&mut con)
        .unwrap();
    assert_eq!(Acquired::from_reply(reply).holds, 0);
}

#[test]
fn a_lower_limit_binds_newcomers_and_leaves_the_line_alone() {
    let (server, mut con, [mut bob, mut carol]) = start_line(["bob", "carol"]);
    run(&mut con, "CONFIG SET lock.max-waiters 1");
    assert_eq!(max_waiters(&mut con), "1");
    assert_eq!(line(&mut con), ["bob", "carol"]);
    assert!(refusal(&mut con, "LOCK.ACQUIRE lock dave 60000 BLOCK 0").starts_with("LINEFULL "));
    release(&mut con, "lock", "me");
    bob.assert_has_lock(&mut con, "bob");
    assert!(refusal(&mut con, "LOCK.ACQUIRE lock dave 60000 BLOCK 0").starts_with("LINEFULL "));
    release(&mut con, "lock", "bob");
    carol.assert_has_lock(&mut con, "carol");
    Waiter::join_for(&server, "dave");
}

#[test]
fn a_limit_that_makes_no_sense_is_refused() {
    let (_server, mut con) = start();
    for value in ["-1", "x", "1.5", "9223372036854775808"] {
        let refused = refusal(&mut con, &format!("CONFIG SET lock.max-waiters {value}"));
        assert!(refused.starts_with("ERR "), "{value}: {refused}");
        let started = Server::with_module().module_arg("max-waiters", value).try_start();
        let error = format!("{:#}", started.expect_err("the load is refused"));
        assert!(error.contains("max-waiters"), "{value}: {error}");
    }
    assert_eq!(max_waiters(&mut con), "100000");
}

#[test]
fn the_limit_may_stand_in_the_configuration_file_and_survives_a_rewrite() {
    let mut server =
        Server::with_module().module_arg("max-waiters", "7").config("lock.max-waiters", "8").start();
    let mut con = server.connect();
    assert_eq!(max_waiters(&mut con), "8");
    run(&mut con, "CONFIG SET lock.max-waiters 9");
    run(&mut con, "CONFIG REWRITE");
    server.restart();
    assert_eq!(max_waiters(&mut server.connect()), "9");
}

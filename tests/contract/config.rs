//! Settings: as arguments of the module, and under `lock.` in CONFIG.

use redis::Connection;
use redis_lock_testkit::{Server, module_path};

use crate::helpers::*;

#[track_caller]
fn setting(con: &mut Connection, name: &str) -> String {
    let (found, value): (String, String) = call(con, &format!("CONFIG GET {name}"));
    assert_eq!(found, name);
    value
}

#[test]
fn the_defaults_are_a_day_and_redissons_channel() {
    let (_server, mut con) = start();
    assert_eq!(setting(&mut con, "lock.max-ttl"), "86400000");
    assert_eq!(setting(&mut con, "lock.channel-prefix"), "redisson_lock__channel");
    assert_eq!(setting(&mut con, "lock.sharded-publish"), "no");
}

#[test]
fn arguments_of_the_module_are_settings() {
    let server = Server::with_module()
        .module_arg("max-ttl", "1000")
        .module_arg("channel-prefix", "unlocked")
        .module_arg("sharded-publish", "yes")
        .start();
    let mut con = server.connect();
    assert_eq!(setting(&mut con, "lock.max-ttl"), "1000");
    assert_eq!(setting(&mut con, "lock.channel-prefix"), "unlocked");
    assert_eq!(setting(&mut con, "lock.sharded-publish"), "yes");
    assert_eq!(acquire(&mut con, "lock", "me", 1_000).holds, 1);
    assert!(refusal(&mut con, "LOCK.ACQUIRE lock me 1001").contains("1000"));
}

#[test]
fn settings_may_stand_in_the_configuration_file() {
    let server = Server::with_module()
        .module_arg("max-ttl", "1000")
        .config("lock.max-ttl", "2000")
        .config("lock.sharded-publish", "yes")
        .start();
    let mut con = server.connect();
    assert_eq!(setting(&mut con, "lock.max-ttl"), "2000");
    assert_eq!(setting(&mut con, "lock.sharded-publish"), "yes");
}

#[test]
fn a_change_of_the_longest_lease_binds_at_once_and_leaves_leases_alone() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    run(&mut con, "CONFIG SET lock.max-ttl 1000");
    assert!(refusal(&mut con, "LOCK.ACQUIRE other me 1001").contains("ttl"));
    assert!(refusal(&mut con, "LOCK.RENEW lock me 1001").contains("ttl"));
    assert_lease(pttl(&mut con, "lock"), 30_000);
    assert_eq!(renew(&mut con, "lock", "me", 1_000), 1);
    assert_lease(pttl(&mut con, "lock"), 30_000);
    run(&mut con, "CONFIG SET lock.max-ttl 172800000");
    assert_eq!(acquire(&mut con, "long", "me", 172_800_000).ttl, 172_800_000);
}

#[test]
fn an_impossible_setting_is_refused_and_nothing_changes() {
    let (_server, mut con) = start();
    for (name, value) in [
        ("max-ttl", "0"),
        ("max-ttl", "-1"),
        ("max-ttl", "x"),
        ("max-ttl", "9223372036854775808"),
        ("sharded-publish", "maybe"),
        ("no-such-setting", "1"),
    ] {
        assert!(
            refusal(&mut con, &format!("CONFIG SET lock.{name} {value}")).starts_with("ERR "),
            "{name} {value}"
        );
    }
    assert_eq!(setting(&mut con, "lock.max-ttl"), "86400000");
    assert_eq!(setting(&mut con, "lock.sharded-publish"), "no");
}

#[test]
fn the_longest_lease_may_be_as_long_as_the_server_takes() {
    let (server, mut con) = start();
    let longest = raise_longest_lease(&mut con);
    assert_eq!(acquire(&mut con, "lock", "me", longest).holds, 1);
    assert!(pttl(&mut con, "lock") > longest - SLACK_MS);
    assert_eq!(renew(&mut con, "lock", "me", longest), 1);
    assert_eq!(release(&mut con, "lock", "me"), Some(0));
    server.assert_alive();
}

/// Doubles the longest lease for as long as that is allowed, and returns it.
fn raise_longest_lease(con: &mut Connection) -> i64 {
    let mut longest: i64 = 86_400_000;
    while let Some(longer) = longest.checked_mul(2) {
        if command(&format!("CONFIG SET lock.max-ttl {longer}")).exec(con).is_err() {
            break;
        }
        longest = longer;
    }
    longest
}

#[test]
fn config_rewrite_keeps_settings_across_a_restart() {
    let mut server = Server::with_module().module_arg("max-ttl", "1000").start();
    let mut con = server.connect();
    run(&mut con, "CONFIG SET lock.max-ttl 2000");
    run(&mut con, "CONFIG SET lock.channel-prefix free");
    run(&mut con, "CONFIG REWRITE");
    server.restart();
    let mut con = server.connect();
    assert_eq!(setting(&mut con, "lock.max-ttl"), "2000");
    assert_eq!(setting(&mut con, "lock.channel-prefix"), "free");
    assert_eq!(setting(&mut con, "lock.sharded-publish"), "no");
}

#[test]
fn config_rewrite_keeps_arguments_across_a_restart() {
    let mut server = Server::with_module().module_arg("max-ttl", "1000").start();
    run(&mut server.connect(), "CONFIG REWRITE");
    server.restart();
    assert_eq!(setting(&mut server.connect(), "lock.max-ttl"), "1000");
}

#[test]
fn an_argument_that_makes_no_sense_refuses_the_load() {
    for (name, value) in [
        ("no-such-argument", "1"),
        ("max-ttl", "0"),
        ("max-ttl", "-5"),
        ("max-ttl", "soon"),
        ("max-ttl", "99999999999999999999"),
        ("sharded-publish", "maybe"),
    ] {
        let started = Server::with_module().module_arg(name, value).try_start();
        let error = format!("{:#}", started.expect_err("the load is refused"));
        assert!(error.contains(name), "{name} {value}: {error}");
    }
}

#[test]
fn an_argument_without_its_value_refuses_the_load() {
    let line = format!("{} max-ttl", module_path().display());
    let started = Server::without_module().config("loadmodule", &line).try_start();
    let error = format!("{:#}", started.expect_err("the load is refused"));
    assert!(error.contains("max-ttl"), "{error}");
}

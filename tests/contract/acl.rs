//! Rights: by command, by category, by key.

use redis::Connection;
use redis_lock_testkit::{Flavor, Server};

use crate::helpers::*;
use crate::listener::{Listener, Message};

const NAMES: [&str; 5] = ["lock.acquire", "lock.renew", "lock.release", "lock.info", "lock.forcerelease"];

/// A connection of a user with these rights.
fn user(server: &Server, rights: &str) -> Connection {
    run(&mut server.connect(), &format!("ACL SETUSER app on >secret {rights}"));
    let mut con = server.connect();
    run(&mut con, "AUTH app secret");
    con
}

/// Goes through the life of a lock.
#[track_caller]
fn assert_all_works(con: &mut Connection, key: &str) {
    assert_eq!(acquire(con, key, "me", 30_000).holds, 1);
    assert_eq!(acquire(con, key, "you", 30_000).holds, 0);
    assert_eq!(renew(con, key, "me", 60_000), 1);
    assert!(info(con, key).is_held_by("me"));
    assert_eq!(release(con, key, "me"), Some(0));
    assert_eq!(force_release(con, key), 0);
}

#[track_caller]
fn assert_no_permission(con: &mut Connection, line: &str) {
    let refused = refusal(con, line);
    assert!(refused.starts_with("NOPERM "), "{line}: {refused}");
}

#[test]
fn a_key_pattern_binds_every_command_and_is_enough() {
    let (server, mut admin) = start();
    let mut listener = Listener::on(&server);
    let commands = NAMES.map(|name| format!("+{name}")).join(" ");
    let mut con = user(&server, &format!("resetchannels ~app:* -@all {commands}"));
    assert_all_works(&mut con, "app:lock");
    for line in [
        "LOCK.ACQUIRE other me 30000",
        "LOCK.RENEW other me 30000",
        "LOCK.RELEASE other me",
        "LOCK.INFO other",
        "LOCK.FORCERELEASE other",
    ] {
        assert_no_permission(&mut con, line);
    }
    assert_eq!(listener.heard(), [Message::unlock("app:lock")]);
    acquire(&mut con, "app:lock", "me", 30_000);
    assert_eq!(call::<Vec<String>>(&mut admin, "KEYS *"), ["app:lock"]);
}

#[test]
fn locks_need_no_scripts() {
    let (server, _) = start();
    assert_all_works(&mut user(&server, "~* &* +@all -@scripting"), "lock");
}

#[test]
fn each_command_is_a_right_of_its_own() {
    let (server, _) = start();
    let mut con = user(&server, "~* -@all +lock.acquire +lock.release");
    assert_eq!(acquire(&mut con, "lock", "me", 30_000).holds, 1);
    assert_no_permission(&mut con, "LOCK.RENEW lock me 30000");
    assert_no_permission(&mut con, "LOCK.INFO lock");
    assert_no_permission(&mut con, "LOCK.FORCERELEASE lock");
    assert_eq!(release(&mut con, "lock", "me"), Some(0));
}

#[test]
fn info_needs_only_the_right_to_read() {
    let (server, mut admin) = start();
    acquire(&mut admin, "lock", "me", 30_000);
    let mut con = user(&server, "%R~* +@all");
    assert!(info(&mut con, "lock").is_held_by("me"));
    assert_no_permission(&mut con, "LOCK.ACQUIRE lock me 30000");
    assert_no_permission(&mut con, "LOCK.RENEW lock me 60000");
    assert_no_permission(&mut con, "LOCK.RELEASE lock me");
    assert_no_permission(&mut con, "LOCK.FORCERELEASE lock");
    let mut con = user(&server, "reset on >secret %W~* +@all");
    assert_no_permission(&mut con, "LOCK.INFO lock");
}

#[test]
fn categories_are_as_those_of_built_in_commands() {
    let (server, mut admin) = start();
    if !server.version().at_least(Flavor::Redis, 7, 2) {
        return;
    }
    for (rights, allowed) in [
        ("+@write", &["lock.acquire", "lock.renew", "lock.release", "lock.forcerelease"][..]),
        ("+@read", &["lock.info"]),
        ("+@fast", &NAMES),
        ("+@dangerous", &["lock.forcerelease"]),
        ("+@all -@dangerous", &["lock.acquire", "lock.renew", "lock.release", "lock.info"]),
    ] {
        run(&mut admin, &format!("ACL SETUSER app reset on ~* -@all {rights}"));
        let may = |name: &&str| {
            let arguments = ["lock", "me", "30000"].into_iter().take(arity(name));
            let mut dry_run = redis::cmd("ACL");
            dry_run.arg("DRYRUN").arg("app").arg(*name).arg(arguments.collect::<Vec<_>>());
            dry_run.query(&mut server.connect()) == Ok("OK".to_owned())
        };
        assert_eq!(NAMES.into_iter().filter(may).collect::<Vec<_>>(), allowed, "{rights}");
    }
}

/// How many arguments the shortest form of a command has.
fn arity(name: &str) -> usize {
    match name {
        "lock.acquire" | "lock.renew" => 3,
        "lock.release" => 2,
        _ => 1,
    }
}

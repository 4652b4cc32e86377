//! A server that is killed at random under load, and started again: no lock without a lease, no lease longer than it was
//! granted, no token a second time, and with `appendfsync always` nothing forgotten that was answered.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rand::Rng as _;
use redis::{Connection, RedisResult, cmd};
use redis_lock_testkit::{Builder, Server};

use crate::helpers::*;

const OWNERS: usize = 6;
const LOCKS: usize = 8;
const ROUNDS: usize = 6;

/// Longer than a test takes: what was held is held when it is looked at.
const TTL: i64 = 120_000;

/// What an owner knows of one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Belief {
    Held,
    NotHeld,
    /// A request was sent that was never answered.
    Uncertain,
}

/// What an owner has seen until the server was killed.
#[derive(Debug, Default)]
struct Account {
    locks: BTreeMap<usize, Belief>,
    highest_token: i64,
}

impl Account {
    /// Takes and gives back locks at random until the server is gone.
    fn keep(con: &mut Connection, owner: &str, account: &mut Self) {
        let mut rng = rand::rng();
        loop {
            let lock = rng.random_range(0..LOCKS);
            let belief = account.locks.entry(lock).or_insert(Belief::NotHeld);
            let before = std::mem::replace(belief, Belief::Uncertain);
            let asked: RedisResult<Belief> = if before == Belief::Held && rng.random() {
                let mut release = cmd("LOCK.RELEASE");
                release.arg(name(lock)).arg(owner).arg("HOLDS").arg(0);
                release.exec(con).map(|()| Belief::NotHeld)
            } else {
                let mut acquire = cmd("LOCK.ACQUIRE");
                acquire.arg(name(lock)).arg(owner).arg(TTL).arg("HOLDS").arg(1);
                acquire.query::<redis::Value>(con).map(Acquired::from_reply).map(|reply| {
                    if reply.holds > 0 {
                        account.highest_token = account.highest_token.max(reply.token);
                        Belief::Held
                    } else {
                        Belief::NotHeld
                    }
                })
            };
            match asked {
                Ok(belief) => account.locks.insert(lock, belief),
                Err(_) => return,
            };
        }
    }
}

fn name(lock: usize) -> String {
    format!("lock:{lock}")
}

fn owner(n: usize, round: usize) -> String {
    format!("owner-{n}-{round}")
}

/// Lets owners loose on the server and kills it; what they had seen by then.
fn kill_under_load(server: &mut Server, round: usize, saves: Saves) -> Vec<Account> {
    let connections: Vec<_> = (0..OWNERS).map(|_| server.connect()).collect();
    let mut saver = server.connect();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let owners = connections.into_iter().enumerate().map(|(n, mut con)| {
            scope.spawn(move || {
                let mut account = Account::default();
                Account::keep(&mut con, &owner(n, round), &mut account);
                account
            })
        });
        let owners: Vec<_> = owners.collect();
        if saves == Saves::Often {
            let is_over = &is_over;
            scope.spawn(
                move || while !is_over.load(Ordering::Relaxed) && cmd("SAVE").exec(&mut saver).is_ok() {},
            );
        }
        // At random, and so at no event.
        thread::sleep(Duration::from_millis(rand::random_range(20..250)));
        server.kill();
        is_over.store(true, Ordering::Relaxed);
        owners.into_iter().map(|owner| owner.join().expect("no owner panics")).collect()
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Saves {
    Often,
    Never,
}

/// What must hold however much was lost. The locks are free afterwards.
fn assert_sound(con: &mut Connection, killed_at: i64, accounts: &[Account]) {
    for lock in (0..LOCKS).map(name) {
        let fields = hash(con, &lock);
        let ends: i64 = cmd("PEXPIRETIME").arg(&lock).query(con).expect("the time of a key's end");
        match fields.len() {
            0 => assert_eq!(ends, -2, "{lock}"),
            _ => assert!((1..=killed_at + TTL + 1).contains(&ends), "{lock}: {ends}, {fields:?}"),
        }
    }
    let highest = accounts.iter().map(|account| account.highest_token).max().unwrap_or(0);
    let fresh = acquire(con, "another", "me", TTL).token;
    assert!(fresh > highest, "{fresh} after {highest}");
    force_release(con, "another");
}

fn assert_nothing_was_forgotten(con: &mut Connection, round: usize, accounts: &[Account]) {
    for (n, account) in accounts.iter().enumerate() {
        for (&lock, &belief) in &account.locks {
            let is_held = info(con, name(lock)).is_held_by(&owner(n, round));
            match belief {
                Belief::Held => assert!(is_held, "{} has lost {}", owner(n, round), name(lock)),
                Belief::NotHeld => assert!(!is_held, "{} still has {}", owner(n, round), name(lock)),
                Belief::Uncertain => {}
            }
        }
    }
}

/// Kills a server again and again.
fn play(builder: Builder, saves: Saves, check: fn(&mut Connection, usize, &[Account])) {
    let mut server = builder.start();
    let mut grants = 0;
    for round in 0..ROUNDS {
        let accounts = kill_under_load(&mut server, round, saves);
        let killed_at = now_ms();
        grants += accounts.iter().filter(|account| account.highest_token > 0).count();
        server.restart();
        let mut con = server.connect();
        check(&mut con, round, &accounts);
        assert_sound(&mut con, killed_at, &accounts);
        for lock in 0..LOCKS {
            force_release(&mut con, name(lock));
        }
    }
    assert!(grants > 0, "the load was none");
}

fn nothing_more(_: &mut Connection, _: usize, _: &[Account]) {}

#[test]
fn with_snapshots() {
    play(Server::with_module(), Saves::Often, nothing_more);
}

#[test]
fn with_an_append_only_file_that_is_synced_each_second() {
    let builder = Server::with_module().config("appendonly", "yes").config("appendfsync", "everysec");
    play(builder, Saves::Never, nothing_more);
}

#[test]
fn with_an_append_only_file_that_is_always_synced() {
    let builder = Server::with_module().config("appendonly", "yes").config("appendfsync", "always");
    play(builder, Saves::Never, assert_nothing_was_forgotten);
}

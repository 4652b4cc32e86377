//! Steps of the wall clock move no lease: monotonic time decides.

use std::time::{Duration, Instant};

use redis::Connection;
use redis_lock_testkit::{Server, eventually};

use crate::helpers::*;
use crate::listener::{Listener, Message};
use crate::waiting::waiter::*;

const DAY: i64 = 86_400_000;
const YEAR: i64 = 365 * DAY;

/// Each step is made on a server of its own.
const STEPS: [i64; 6] = [DAY, -DAY, YEAR, -YEAR, 5_000, -5_000];

/// No lease ends later than by this: what the contract allows.
const LATE: Duration = Duration::from_secs(1);

/// Nor earlier: the contract would allow a second, but two would hold the lock.
const EARLY: Duration = Duration::from_millis(60);

fn start_with_clock() -> (Server, Connection) {
    let server = Server::with_module().movable_clock().start();
    let con = server.connect();
    (server, con)
}

/// The server's own wall clock, in milliseconds.
fn server_time(con: &mut Connection) -> i64 {
    let (seconds, micros): (i64, i64) = call(con, "TIME");
    seconds * 1000 + micros / 1000
}

/// Fails unless a lease of this length, which began at `begun`, has ended just now.
#[track_caller]
fn assert_ended_in_time(begun: Instant, ttl_ms: u64, step: i64) {
    let (lasted, ttl) = (begun.elapsed(), Duration::from_millis(ttl_ms));
    assert!(lasted + EARLY >= ttl, "step by {step}: it ended after {lasted:?} of {ttl:?}");
    assert!(lasted <= ttl + LATE, "step by {step}: it lasted {lasted:?} of {ttl:?}");
}

/// Runs a story for each step, side by side: most of the time they wait.
fn for_each_step(story: fn(i64)) {
    std::thread::scope(|scope| {
        for step in STEPS {
            scope.spawn(move || story(step));
        }
    });
}

/// Waits until the server's clock is ahead by so much: Valkey 9.1 looks at it once a millisecond.
#[track_caller]
fn await_lead(con: &mut Connection, lead: i64) {
    eventually(PATIENCE, || ((server_time(con) - now_ms() - lead).abs() < 1_000).then_some(()));
}

#[test]
fn the_shim_moves_the_servers_clock() {
    let (server, mut con) = start_with_clock();
    server.step_clock(YEAR);
    await_lead(&mut con, YEAR);
    server.step_clock(-2 * YEAR);
    await_lead(&mut con, -YEAR);
}

#[test]
fn a_held_lock_stays_held_and_its_ttl_is_set_anew() {
    for_each_step(|step| {
        let (server, mut con) = start_with_clock();
        let begun = Instant::now();
        acquire(&mut con, "lock", "me", 30_000);
        server.step_clock(step);
        assert_eq!(acquire(&mut con, "lock", "other", 30_000).holds, 0, "step by {step}");
        eventually(Duration::from_secs(2), || {
            let truth = 30_000 - i64::try_from(begun.elapsed().as_millis()).ok()?;
            (pttl(&mut con, "lock") - truth).abs().le(&300).then_some(())
        });
        assert_held(&mut con, "lock", "me");
    });
}

#[test]
fn steps_are_counted() {
    let (server, mut con) = start_with_clock();
    server.step_clock(DAY);
    eventually(PATIENCE, || (info_field(&mut con, "lock", "lock_clock_steps") == 1).then_some(()));
    server.step_clock(-DAY);
    eventually(PATIENCE, || (info_field(&mut con, "lock", "lock_clock_steps") == 2).then_some(()));
}

#[test]
fn a_lease_ends_when_its_time_has_passed() {
    for_each_step(|step| {
        let (server, mut con) = start_with_clock();
        let mut listener = Listener::on(&server);
        let begun = Instant::now();
        acquire(&mut con, "lock", "me", 2_000);
        server.step_clock(step);
        assert_eq!(listener.next(), Message::unlock("lock"));
        assert_ended_in_time(begun, 2_000, step);
        assert_free(&mut con, "lock");
    });
}

#[test]
fn who_waits_is_served_when_the_time_has_passed() {
    for_each_step(|step| {
        let (server, mut con) = start_with_clock();
        let begun = Instant::now();
        acquire(&mut con, "lock", "me", 2_000);
        let mut waiter = Waiter::join(&server, "LOCK.ACQUIRE lock bob 60000 BLOCK 0");
        server.step_clock(step);
        waiter.assert_has_lock(&mut con, "bob");
        assert_ended_in_time(begun, 2_000, step);
    });
}

#[test]
fn a_wait_is_over_when_its_time_has_passed() {
    for_each_step(|step| {
        let (server, mut con) = start_with_clock();
        acquire(&mut con, "lock", "me", 60_000);
        let begun = Instant::now();
        let mut waiter = Waiter::join(&server, "LOCK.ACQUIRE lock bob 60000 BLOCK 1500");
        server.step_clock(step);
        waiter.denied();
        assert_ended_in_time(begun, 1_500, step);
    });
}

#[test]
fn a_renewal_after_a_step_is_a_whole_lease() {
    for_each_step(|step| {
        let (server, mut con) = start_with_clock();
        let mut listener = Listener::on(&server);
        acquire(&mut con, "lock", "me", 30_000);
        server.step_clock(step);
        assert_eq!(renew(&mut con, "lock", "me", 1_000), 1, "step by {step}");
        // A renewal never shortens a lease, PEXPIRE does: of a key that the server has not reaped by the new clock.
        eventually(PATIENCE, || (info_field(&mut con, "lock", "lock_clock_steps") == 1).then_some(()));
        assert_eq!(renew(&mut con, "lock", "me", 1_000), 1, "step by {step}");
        run(&mut con, "PEXPIRE lock 1000");
        let begun = Instant::now();
        assert_eq!(renew(&mut con, "lock", "me", 1_500), 1, "step by {step}");
        assert_eq!(listener.next(), Message::unlock("lock"));
        assert_ended_in_time(begun, 1_500, step);
    });
}

#[test]
fn steps_there_and_back_within_one_lease_move_it_no_more_than_one() {
    let (server, mut con) = start_with_clock();
    let mut listener = Listener::on(&server);
    let begun = Instant::now();
    acquire(&mut con, "lock", "me", 2_000);
    for step in STEPS {
        server.step_clock(step);
        assert_eq!(acquire(&mut con, "lock", "other", 30_000).holds, 0, "step by {step}");
    }
    assert_eq!(listener.next(), Message::unlock("lock"));
    assert_ended_in_time(begun, 2_000, 0);
}

#[test]
fn a_lease_survives_a_step_and_a_restart_after_it() {
    for_each_step(|step| {
        let mut server = Server::with_module()
            .config("appendonly", "yes")
            .config("appendfsync", "always")
            .movable_clock()
            .start();
        let mut con = server.connect();
        acquire(&mut con, "lock", "me", 30_000);
        server.step_clock(step);
        eventually(PATIENCE, || (info_field(&mut con, "lock", "lock_clock_steps") == 1).then_some(()));
        eventually(PATIENCE, || (25_000..=30_000).contains(&pttl(&mut con, "lock")).then_some(()));
        server.kill();
        server.restart();
        let mut con = server.connect();
        assert_held(&mut con, "lock", "me");
        let left = pttl(&mut con, "lock");
        assert!((20_000..=30_000).contains(&left), "step by {step}: {left}");
    });
}

#[test]
fn tokens_grow_over_steps() {
    let (server, mut con) = start_with_clock();
    let mut last = 0;
    for step in STEPS {
        server.step_clock(step);
        let token = acquire(&mut con, "lock", "me", 30_000).token;
        assert!(token > last, "step by {step}: {token} after {last}");
        last = token;
        release(&mut con, "lock", "me");
    }
}

#[test]
fn a_grace_period_is_as_long_as_ever() {
    for_each_step(|step| {
        let begun = Instant::now();
        let server = Server::with_module().module_arg("grace-period", "2500").movable_clock().start();
        let mut con = server.connect();
        server.step_clock(step);
        let granted = Acquired::from_reply(call(&mut con, "LOCK.ACQUIRE lock me 500 BLOCK 30000"));
        assert_eq!(granted.holds, 1);
        let lasted = begun.elapsed();
        assert!(lasted >= Duration::from_millis(2_500), "step by {step}: {lasted:?}");
        assert!(lasted <= Duration::from_millis(6_000), "step by {step}: {lasted:?}");
    });
}

//! Fencing tokens.

use redis::Connection;
use redis_lock_testkit::{Builder, Server};

use crate::helpers::*;
use crate::replicas::{await_replicas, start_replica};

const HOUR_US: i64 = 3_600_000_000;
const DAY_US: i64 = 24 * HOUR_US;

#[test]
fn each_first_hold_gets_the_next_token_whatever_the_key() {
    let (_server, mut con) = start();
    let first = acquire(&mut con, "lock-0", "me", 30_000).token;
    for number in 1..50 {
        let granted = acquire(&mut con, format!("lock-{number}"), number, 30_000);
        assert_eq!(granted.token, first + number);
    }
    release(&mut con, "lock-0", "me");
    assert_eq!(acquire(&mut con, "lock-0", "me", 30_000).token, first + 50);
}

#[test]
fn the_counter_starts_at_the_wall_clock_in_microseconds() {
    let before = now_us() - 1_000;
    let (_server, mut con) = start();
    let ready = now_us();
    let token = acquire(&mut con, "lock", "me", 30_000).token;
    assert!((before..=ready + 1).contains(&token), "{token} is not in {before}..={ready}");
    assert!(token < MAX_NUMBER);
}

#[test]
fn a_denied_acquire_uses_no_token_up() {
    let (_server, mut con) = start();
    let first = acquire(&mut con, "lock", "me", 30_000).token;
    for _ in 0..10 {
        acquire(&mut con, "lock", "you", 30_000);
    }
    assert_eq!(acquire(&mut con, "other", "you", 30_000).token, first + 1);
}

/// A token of the server's life before `end_of_life` is below one of the life after.
fn assert_tokens_grow_across_restart(builder: Builder, end_of_life: impl Fn(&mut Server, &mut Connection)) {
    let mut server = builder.start();
    let mut con = server.connect();
    let mut last = acquire(&mut con, "kept", "me", 60_000).token;
    for number in 0..1_000 {
        last = acquire(&mut con, "lock", number, 60_000).token;
        release(&mut con, "lock", number);
    }
    end_of_life(&mut server, &mut con);
    server.restart();
    let next = acquire(&mut server.connect(), "other", "me", 60_000).token;
    assert!(next > last, "{next} after {last}");
}

#[test]
fn tokens_grow_across_a_restart_with_an_rdb() {
    assert_tokens_grow_across_restart(Server::with_module(), |server, con| {
        run(con, "SAVE");
        server.stop();
    });
}

#[test]
fn tokens_grow_across_a_restart_with_an_aof() {
    assert_tokens_grow_across_restart(Server::with_module().config("appendonly", "yes"), |server, _| {
        server.stop();
    });
}

#[test]
fn tokens_grow_across_a_crash_with_nothing_persisted() {
    assert_tokens_grow_across_restart(Server::with_module(), |server, _| server.kill());
}

#[test]
fn tokens_stay_above_every_token_of_an_rdb_or_aof_even_one_from_the_future() {
    for persistence in ["no", "yes"] {
        let mut server = Server::with_module().config("appendonly", persistence).start();
        let mut con = server.connect();
        let future = now_us() + 12 * HOUR_US;
        acquire_with(&mut con, "kept", "me", 60_000, &format!("TOKEN {future}"));
        run(&mut con, "SAVE");
        server.restart();
        let next = acquire(&mut server.connect(), "other", "me", 60_000).token;
        assert!(next > future, "appendonly {persistence}");
    }
}

#[test]
fn tokens_stay_above_those_of_a_reloaded_dataset() {
    let (_server, mut con) = start();
    let future = now_us() + 12 * HOUR_US;
    acquire_with(&mut con, "kept", "me", 60_000, &format!("TOKEN {future}"));
    run(&mut con, "DEBUG RELOAD");
    assert!(acquire(&mut con, "other", "me", 60_000).token > future);
}

#[test]
fn tokens_grow_across_a_promotion() {
    let master = Server::with_module().start();
    let replica = start_replica(&master, Server::with_module());
    let mut con = master.connect();
    let future = now_us() + 12 * HOUR_US;
    acquire_with(&mut con, "future", "me", 60_000, &format!("TOKEN {future}"));
    await_replicas(&mut con, 1);
    let mut promoted = replica.connect();
    run(&mut promoted, "REPLICAOF NO ONE");
    assert!(acquire(&mut promoted, "other", "me", 60_000).token > future);
}

#[test]
fn tokens_grow_across_the_promotion_of_a_replica_that_had_them_from_a_snapshot() {
    for diskless in ["disabled", "swapdb"] {
        let (master, mut con) = start();
        let future = now_us() + 12 * HOUR_US;
        acquire_with(&mut con, "future", "me", 60_000, &format!("TOKEN {future}"));
        let replica = start_replica(&master, Server::with_module().config("repl-diskless-load", diskless));
        let mut promoted = replica.connect();
        assert_eq!(info_field(&mut promoted, "lock", "lock_held"), 1, "{diskless}");
        run(&mut promoted, "REPLICAOF NO ONE");
        assert!(acquire(&mut promoted, "other", "me", 60_000).token > future, "{diskless}");
    }
}

#[test]
fn a_promoted_replica_counts_from_its_own_clock_at_the_promotion() {
    let master = Server::with_module().start();
    let replica = start_replica(&master, Server::with_module());
    let mut con = master.connect();
    let token = acquire(&mut con, "gone", "me", 60_000).token;
    release(&mut con, "gone", "me");
    await_replicas(&mut con, 1);
    let mut promoted = replica.connect();
    // Some servers tell a module the time in whole milliseconds only.
    let before = now_us() - 1_000;
    run(&mut promoted, "REPLICAOF NO ONE");
    let next = acquire(&mut promoted, "other", "me", 60_000).token;
    assert!(next > token);
    assert!(next >= before, "{next} is not from the promotion at {before}");
}

#[test]
fn a_restored_lock_raises_the_counter() {
    let (source, mut con) = start();
    let future = now_us() + 12 * HOUR_US;
    acquire_with(&mut con, "lock", "me", 60_000, &format!("TOKEN {future}"));
    let dump: Vec<u8> = call(&mut con, "DUMP lock");
    drop(source);
    let (_server, mut con) = start();
    let restore = redis::cmd("RESTORE").arg("lock").arg(60_000).arg(dump).exec(&mut con);
    assert_eq!(restore, Ok(()));
    assert!(acquire(&mut con, "other", "you", 60_000).token > future);
}

#[test]
fn token_sets_the_least_token_of_a_first_hold_and_of_the_node() {
    let (_server, mut con) = start();
    let asked = now_us() + HOUR_US;
    let granted = acquire_with(&mut con, "lock", "me", 30_000, &format!("TOKEN {asked}"));
    assert!(granted.token >= asked);
    assert_eq!(hash(&mut con, "lock")[TOKEN_FIELD], granted.token.to_string());
    assert_eq!(acquire(&mut con, "other", "me", 30_000).token, granted.token + 1);
}

#[test]
fn a_token_already_passed_asks_for_nothing() {
    let (_server, mut con) = start();
    let first = acquire(&mut con, "lock", "me", 30_000).token;
    assert_eq!(acquire_with(&mut con, "other", "me", 30_000, "TOKEN 1").token, first + 1);
}

#[test]
fn token_raises_the_token_of_a_re_entry_and_never_lowers_it() {
    let (_server, mut con) = start();
    let first = acquire(&mut con, "lock", "me", 30_000).token;
    let asked = now_us() + HOUR_US;
    let raised = acquire_with(&mut con, "lock", "me", 30_000, &format!("HOLDS 1 TOKEN {asked}"));
    assert_eq!((raised.holds, raised.token), (1, asked));
    assert_eq!(hash(&mut con, "lock")[TOKEN_FIELD], asked.to_string());
    assert_eq!(acquire_with(&mut con, "lock", "me", 30_000, &format!("TOKEN {first}")).token, asked);
    assert!(acquire(&mut con, "other", "me", 30_000).token > asked);
}

#[test]
fn a_denied_call_raises_no_token() {
    let (_server, mut con) = start();
    let first = acquire(&mut con, "lock", "me", 30_000).token;
    let asked = now_us() + HOUR_US;
    let denied = acquire_with(&mut con, "lock", "you", 30_000, &format!("TOKEN {asked}"));
    assert_eq!((denied.holds, denied.token), (0, first));
    assert_eq!(acquire(&mut con, "other", "me", 30_000).token, first + 1);
}

#[test]
fn a_token_may_lie_a_day_ahead_of_the_nodes_clock_and_no_further() {
    let (_server, mut con) = start();
    let far = now_us() + DAY_US + HOUR_US;
    let before = Snapshot::take(&mut con);
    for token in [far, MAX_NUMBER] {
        let refused = refusal(&mut con, &format!("LOCK.ACQUIRE lock me 30000 TOKEN {token}"));
        assert!(refused.starts_with("BADTOKEN "), "{refused}");
    }
    assert_eq!(Snapshot::take(&mut con), before);
    let near = now_us() + DAY_US - HOUR_US;
    assert!(acquire_with(&mut con, "lock", "me", 30_000, &format!("TOKEN {near}")).token >= near);
    let refused = refusal(&mut con, &format!("LOCK.RENEW lock me 30000 TOKEN {far}"));
    assert!(refused.starts_with("BADTOKEN "), "{refused}");
}

#[test]
fn a_hand_made_token_cannot_use_the_tokens_up() {
    let (_server, mut con) = start();
    let first = acquire(&mut con, "lock", "me", 30_000).token;
    for junk in [&MAX_NUMBER.to_string(), "99999999999999999999", "-1", "x"] {
        run(&mut con, &format!("HSET junk {TOKEN_FIELD} {junk}"));
        let granted = acquire(&mut con, "junk", "me", 30_000);
        assert_eq!(granted.holds, 1, "{junk}");
        assert!(granted.token > first && granted.token < MAX_NUMBER, "{junk}");
        run(&mut con, "DEL junk");
    }
}

#[test]
fn a_token_that_is_left_alone_in_its_hash_raises_the_counter() {
    let (_server, mut con) = start();
    let left = now_us() + 3_600_000_000;
    run(&mut con, &format!("HSET lock lock:token {left}"));
    assert!(acquire(&mut con, "lock", "me", 30_000).token > left);
}

#[test]
fn a_token_that_is_left_alone_raises_the_counter_across_a_restart() {
    let (mut server, mut con) = start();
    let left = now_us() + 3_600_000_000;
    run(&mut con, &format!("HSET lock lock:token {left}"));
    run(&mut con, "SAVE");
    server.kill();
    server.restart();
    assert!(acquire(&mut server.connect(), "other", "me", 30_000).token > left);
}

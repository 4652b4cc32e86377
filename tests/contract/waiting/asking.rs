//! `LOCK.ACQUIRE … BLOCK`: who waits, for how long, and what is the answer.

use std::time::{Duration, Instant};

use redis::{Value, cmd};

use super::waiter::*;
use crate::helpers::*;

#[test]
fn a_free_lock_is_granted_at_once() {
    let (_server, mut con) = start();
    let granted = acquire_with(&mut con, "lock", "me", 30_000, "BLOCK 0");
    assert_eq!((granted.holds, granted.ttl), (1, 30_000));
    assert_held(&mut con, "lock", "me");
    assert_eq!(info_field(&mut con, "lock", "lock_handed_over"), 0);
}

#[test]
fn a_lock_whose_lease_has_run_out_is_granted_at_once() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 20);
    let replies = at_once(&mut con, &["DEBUG SLEEP 0.1", "LOCK.ACQUIRE lock you 30000 BLOCK 0"]);
    assert_eq!(Acquired::from_reply(replies[1].clone()).holds, 1);
    assert_held(&mut con, "lock", "you");
}

#[test]
fn the_line_is_served_in_order_of_arrival() {
    const OWNERS: [&str; 6] = ["f", "a", "e", "b", "d", "c"];
    let (_server, mut con, waiters) = start_line(OWNERS);
    assert_eq!(line(&mut con), OWNERS);
    let (mut holder, mut token) = ("me", info(&mut con, "lock").token);
    for (place, (mut waiter, owner)) in waiters.into_iter().zip(OWNERS).enumerate() {
        assert_eq!(release(&mut con, "lock", holder), Some(0));
        waiter.assert_has_lock(&mut con, owner);
        assert_eq!(line(&mut con), OWNERS[place + 1..]);
        let next = info(&mut con, "lock").token;
        assert!(next > token, "{next} after {token}");
        (holder, token) = (owner, next);
    }
    assert_eq!(release(&mut con, "lock", holder), Some(0));
    assert_free(&mut con, "lock");
}

#[test]
fn each_lock_has_a_line_of_its_own() {
    let (server, mut con) = start();
    for key in ["lock", "other"] {
        acquire(&mut con, key, "me", 30_000);
    }
    let mut for_lock = Waiter::join(&server, "LOCK.ACQUIRE lock bob 60000 BLOCK 0");
    let mut for_other = Waiter::join(&server, "LOCK.ACQUIRE other bob 60000 BLOCK 0");
    release(&mut con, "other", "me");
    assert_eq!(for_other.granted().holds, 1);
    assert_eq!(line(&mut con), ["bob"]);
    assert_held(&mut con, "lock", "me");
    release(&mut con, "lock", "me");
    for_lock.assert_has_lock(&mut con, "bob");
}

#[test]
fn each_database_has_lines_of_its_own() {
    let (_server, mut con, [mut bob]) = start_line(["bob"]);
    run(&mut con, "SELECT 1");
    acquire(&mut con, "lock", "me", 30_000);
    assert_eq!(line(&mut con), Vec::<String>::new());
    release(&mut con, "lock", "me");
    assert_free(&mut con, "lock");
    run(&mut con, "SELECT 0");
    assert_eq!(line(&mut con), ["bob"]);
    release(&mut con, "lock", "me");
    bob.assert_has_lock(&mut con, "bob");
}

#[test]
fn the_lease_starts_at_the_grant() {
    let (_server, mut con, [mut bob]) = start_line(["bob"]);
    sleep_until(now_ms() + 50);
    let before = now_ms();
    release(&mut con, "lock", "me");
    assert_eq!(bob.granted().ttl, WAITERS_TTL);
    let end: i64 = call(&mut con, "PEXPIRETIME lock");
    assert!(end >= before + WAITERS_TTL, "the lease ends {} ms early", before + WAITERS_TTL - end);
}

#[test]
fn who_has_waited_long_enough_is_denied() {
    let (server, mut con) = start();
    let token = acquire(&mut con, "lock", "me", 30_000).token;
    let begin = Instant::now();
    let mut bob = Waiter::join(&server, "LOCK.ACQUIRE lock bob 60000 BLOCK 300");
    let denied = bob.denied();
    let waited = begin.elapsed();
    assert!((300..300 + 5_000).contains(&waited.as_millis()), "waited for {waited:?}");
    assert_eq!(denied.token, token);
    assert!((30_000 - SLACK_MS..=29_700).contains(&denied.ttl), "{denied:?}");
    bob.assert_in_step();
    assert_eq!(line(&mut con), Vec::<String>::new());
    assert_eq!(info_field(&mut con, "lock", "lock_wait_timed_out"), 1);
    release(&mut con, "lock", "me");
    assert_free(&mut con, "lock");
}

#[test]
fn who_is_denied_behind_an_endless_lease_is_told_so() {
    let (server, mut con) = start();
    let token = acquire(&mut con, "lock", "me", 30_000).token;
    run(&mut con, "PERSIST lock");
    let mut bob = Waiter::join(&server, "LOCK.ACQUIRE lock bob 60000 BLOCK 100");
    assert_eq!(bob.answer(), Acquired { holds: 0, ttl: -1, token });
}

/// The server's own time-outs come up to 100 ms late.
#[test]
fn time_is_up_when_it_is_up_whoever_came_first() {
    const WAITERS: u32 = 20;
    let (server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    let timeout = |number: u32| Duration::from_millis(1_000 + u64::from(number * 7 % WAITERS) * 30);
    let mut waiters: Vec<_> = (0..WAITERS)
        .map(|number| {
            let timeout = timeout(number).as_millis();
            let request = format!("LOCK.ACQUIRE lock owner-{number} 60000 BLOCK {timeout}");
            let sent = Instant::now();
            (number, sent, Waiter::join(&server, &request))
        })
        .collect();
    waiters.sort_by_key(|(number, sent, _)| *sent + timeout(*number));
    let mut late: Vec<_> = waiters
        .iter_mut()
        .map(|(number, sent, waiter)| {
            waiter.denied();
            sent.elapsed().checked_sub(timeout(*number)).expect("not before its time is up")
        })
        .collect();
    late.sort_unstable();
    let median = late[late.len() / 2];
    assert!(median < Duration::from_millis(50), "half of them waited {median:?} too long");
    assert_eq!(line(&mut con), Vec::<String>::new());
}

#[test]
fn block_0_waits_without_end() {
    let (server, mut con, [mut bob]) = start_line(["bob"]);
    let mut carol = Waiter::join(&server, "LOCK.ACQUIRE lock carol 60000 BLOCK 200");
    carol.denied();
    assert_eq!(line(&mut con), ["bob"]);
    release(&mut con, "lock", "me");
    bob.assert_has_lock(&mut con, "bob");
}

#[test]
fn options_come_in_any_order_and_case() {
    let (server, mut con) = start();
    let token = now_us() + 60_000_000;
    for options in [
        format!("BLOCK 0 HOLDS 3 TOKEN {token}"),
        format!("token {token} Block 0 holds 3"),
        format!("HOLDS 3 TOKEN {token} block 0"),
    ] {
        acquire(&mut con, "lock", "me", 30_000);
        let mut bob = Waiter::join(&server, &format!("LOCK.ACQUIRE lock bob 60000 {options}"));
        release(&mut con, "lock", "me");
        let granted = bob.granted();
        assert_eq!((granted.holds, granted.ttl), (3, 60_000), "{options}");
        assert!(granted.token >= token, "{options}: {granted:?}");
        force_release(&mut con, "lock");
    }
}

#[test]
fn holds_and_token_are_honoured_at_the_grant_and_not_before() {
    let (server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    let asked = now_us() + 60_000_000;
    let mut bob =
        Waiter::join(&server, &format!("LOCK.ACQUIRE lock bob 60000 HOLDS 5 TOKEN {asked} BLOCK 0"));
    let meanwhile = acquire(&mut con, "other", "me", 30_000).token;
    assert!(meanwhile < asked, "who waits has raised the counter");
    release(&mut con, "lock", "me");
    assert_eq!(bob.answer(), Acquired { holds: 5, ttl: 60_000, token: asked });
    assert_eq!(hash(&mut con, "lock")["bob"], "5");
    assert!(acquire(&mut con, "another", "me", 30_000).token > asked);
    assert_eq!(release(&mut con, "lock", "bob"), Some(4));
}

#[test]
fn a_raised_token_is_honoured_by_whoever_comes_later() {
    let (server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    let asked = now_us() + 60_000_000;
    let mut bob = Waiter::join(&server, &format!("LOCK.ACQUIRE lock bob 60000 TOKEN {asked} BLOCK 0"));
    let mut carol = Waiter::join_for(&server, "carol");
    release(&mut con, "lock", "me");
    release(&mut con, "lock", "bob");
    assert_eq!(bob.granted().token, asked);
    assert!(carol.granted().token > asked);
}

#[test]
fn in_a_transaction_block_answers_at_once() {
    let (_server, mut con) = start();
    let held = acquire(&mut con, "lock", "me", 30_000);
    let (denied, granted): (Value, Value) = redis::pipe()
        .atomic()
        .add_command(command("LOCK.ACQUIRE lock you 60000 BLOCK 0"))
        .add_command(command("LOCK.ACQUIRE free you 60000 BLOCK 0"))
        .query(&mut con)
        .unwrap();
    let denied = Acquired::from_reply(denied);
    assert_eq!((denied.holds, denied.token), (0, held.token));
    assert_lease(denied.ttl, 30_000);
    assert_eq!(Acquired::from_reply(granted).holds, 1);
    assert_eq!(line(&mut con), Vec::<String>::new());
}

#[test]
fn in_a_script_block_answers_at_once() {
    let (_server, mut con) = start();
    let held = acquire(&mut con, "lock", "me", 30_000);
    let ask = |key: &str| {
        let script = "return redis.call('LOCK.ACQUIRE', KEYS[1], 'you', 60000, 'BLOCK', 0)";
        cmd("EVAL").arg(script).arg(1).arg(key).to_owned()
    };
    let denied = Acquired::from_reply(ask("lock").query(&mut con).unwrap());
    assert_eq!((denied.holds, denied.token), (0, held.token));
    assert_eq!(Acquired::from_reply(ask("free").query(&mut con).unwrap()).holds, 1);
    assert_eq!(line(&mut con), Vec::<String>::new());
}

#[test]
fn the_holder_never_waits_for_itself() {
    let (_server, mut con, [mut bob]) = start_line(["bob"]);
    let token = info(&mut con, "lock").token;
    let again = acquire_with(&mut con, "lock", "me", 45_000, "BLOCK 0");
    assert_eq!((again.holds, again.token), (2, token));
    assert_lease(again.ttl, 45_000);
    assert_eq!(acquire_with(&mut con, "lock", "me", 1_000, "BLOCK 0 HOLDS 2").holds, 2);
    assert_eq!(line(&mut con), ["bob"]);
    assert_eq!(release(&mut con, "lock", "me"), Some(1));
    assert_eq!(line(&mut con), ["bob"]);
    assert_eq!(release(&mut con, "lock", "me"), Some(0));
    bob.assert_has_lock(&mut con, "bob");
}

#[test]
fn who_is_granted_has_its_other_requests_answered_as_re_entries() {
    let (server, mut con, [mut one, mut carol]) = start_line(["bob", "carol"]);
    let mut two = Waiter::join(&server, "LOCK.ACQUIRE lock bob 90000 BLOCK 0");
    let mut dave = Waiter::join_for(&server, "dave");
    let mut three = Waiter::join_for(&server, "bob");
    assert_eq!(line(&mut con), ["bob", "carol", "bob", "dave", "bob"]);
    release(&mut con, "lock", "me");
    let replies = [one.granted(), two.granted(), three.granted()];
    assert_eq!(replies.map(|reply| reply.holds), [1, 2, 3]);
    assert!(replies.iter().all(|reply| reply.token == replies[0].token), "{replies:?}");
    let held = info(&mut con, "lock");
    assert!(held.is_held_by("bob"));
    assert_eq!(held.holds, 3);
    assert_lease(held.ttl, 90_000);
    assert_eq!(line(&mut con), ["carol", "dave"]);
    assert_eq!(release_to(&mut con, "lock", "bob", 0), Some(0));
    carol.assert_has_lock(&mut con, "carol");
    release(&mut con, "lock", "carol");
    dave.assert_has_lock(&mut con, "dave");
    [one, two, three].iter_mut().for_each(Waiter::assert_in_step);
}

#[test]
fn requests_that_name_the_count_are_one_hold_however_many_they_are() {
    let (server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    let mut waiters = [(); 3].map(|()| Waiter::join(&server, "LOCK.ACQUIRE lock bob 60000 HOLDS 1 BLOCK 0"));
    release(&mut con, "lock", "me");
    assert_eq!(waiters.each_mut().map(|waiter| waiter.granted().holds), [1, 1, 1]);
    assert_eq!(release(&mut con, "lock", "bob"), Some(0));
    assert_free(&mut con, "lock");
}

/// A caller may retry on another connection while the first one's request still stands in line.
#[test]
fn who_asks_again_without_waiting_keeps_its_place() {
    let (_server, mut con, [mut bob, _carol]) = start_line(["bob", "carol"]);
    assert_eq!(acquire(&mut con, "lock", "bob", 60_000).holds, 0);
    assert_eq!(line(&mut con), ["bob", "carol"]);
    release(&mut con, "lock", "me");
    bob.assert_has_lock(&mut con, "bob");
}

#[test]
fn in_resp3_the_answer_is_the_same() {
    let (server, mut con) = start();
    for (timeout, free) in [(0, "LOCK.RELEASE lock me"), (50, "PING")] {
        let token = acquire(&mut con, "lock", "me", 30_000).token;
        let mut waiting = server.connect_resp3();
        let ask = command(&format!("LOCK.ACQUIRE lock bob 60000 BLOCK {timeout}"));
        waiting.send_packed_command(&ask.get_packed_command()).unwrap();
        if timeout == 0 {
            await_waiting(&mut con, 1);
        }
        run(&mut con, free);
        let Value::Array(answer) = waiting.recv_response().unwrap() else { panic!("no array") };
        let expected =
            if timeout == 0 { (Value::Int(1), info(&mut con, "lock").token) } else { (Value::Int(0), token) };
        assert_eq!((&answer[0], &answer[2]), (&expected.0, &Value::Int(expected.1)));
        force_release(&mut con, "lock");
    }
}

#[test]
fn a_request_that_would_count_too_far_is_refused_and_the_grant_stands() {
    let (server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    let ask = format!("LOCK.ACQUIRE lock bob 60000 HOLDS {MAX_NUMBER} BLOCK 0");
    let mut most = Waiter::join(&server, &ask);
    let mut more = Waiter::join_for(&server, "bob");
    let mut carol = Waiter::join_for(&server, "carol");
    release(&mut con, "lock", "me");
    assert_eq!(most.granted().holds, MAX_NUMBER);
    let refused = more.error();
    assert!(refused.starts_with("ERR the hold count "), "{refused}");
    assert_eq!(line(&mut con), ["carol"]);
    assert_eq!(release_to(&mut con, "lock", "bob", 0), Some(0));
    carol.assert_has_lock(&mut con, "carol");
}

//! Those who go in the very turn of the event loop in which they are granted the lock.

use std::fs;

use redis::{Connection, Value};
use redis_lock_testkit::{Server, eventually};

use super::waiter::*;
use crate::helpers::*;
use crate::listener::{Listener, Message};

/// What frees the lock in the tests below: a command of ours, and something else's.
const FREEING: [&str; 2] = ["LOCK.RELEASE lock me", "DEL lock"];

/// In one write the lock becomes free and something befalls `bob`, who is first in line. Asserts that `carol`
/// has the lock then; `check` looks at what `bob` was told.
#[track_caller]
fn assert_passes_on(befall: impl Fn(&Waiter) -> String, check: impl Fn(&mut Waiter)) {
    for free in FREEING {
        let (_server, mut con, [mut bob, mut carol, mut dave]) = start_line(["bob", "carol", "dave"]);
        let token = info(&mut con, "lock").token;
        at_once(&mut con, &[free, &befall(&bob)]);
        check(&mut bob);
        carol.assert_has_lock(&mut con, "carol");
        assert_held(&mut con, "lock", "carol");
        assert!(info(&mut con, "lock").token > token);
        assert_eq!(line(&mut con), ["dave"], "{free}");
        release(&mut con, "lock", "carol");
        dave.assert_has_lock(&mut con, "dave");
        carol.assert_in_step();
    }
}

#[test]
fn who_is_killed_with_its_grant_passes_it_on() {
    assert_passes_on(|bob| format!("CLIENT KILL ID {}", bob.id), Waiter::assert_hung_up);
}

#[test]
fn who_is_unblocked_with_an_error_with_its_grant_passes_it_on() {
    assert_passes_on(
        |bob| format!("CLIENT UNBLOCK {} ERROR", bob.id),
        |bob| {
            assert!(bob.error().starts_with("UNBLOCKED "));
            bob.assert_in_step();
        },
    );
}

#[test]
fn who_is_unblocked_with_its_grant_passes_it_on() {
    for form in ["", " TIMEOUT"] {
        assert_passes_on(
            |bob| format!("CLIENT UNBLOCK {}{form}", bob.id),
            |bob| {
                bob.denied();
                bob.assert_in_step();
            },
        );
    }
}

/// Whether it is told of the grant or that it was denied: it has asked for neither any more.
fn assert_one_answer(bob: &mut Waiter) {
    bob.answer();
    bob.assert_in_step();
}

#[test]
fn who_withdraws_with_its_grant_passes_it_on() {
    assert_passes_on(|_| "LOCK.RELEASE lock bob HOLDS 0".to_owned(), assert_one_answer);
}

#[test]
fn a_forced_release_in_the_turn_of_the_grant_passes_it_on() {
    let (_server, mut con, [mut bob, mut carol]) = start_line(["bob", "carol"]);
    let replies = at_once(&mut con, &["LOCK.RELEASE lock me", "LOCK.FORCERELEASE lock"]);
    assert_eq!(replies, [Value::Int(0), Value::Int(1)]);
    assert_one_answer(&mut bob);
    carol.assert_has_lock(&mut con, "carol");
    assert_eq!(line(&mut con), Vec::<String>::new());
}

#[test]
fn a_release_of_the_new_owner_in_the_turn_of_its_grant_passes_it_on() {
    let (_server, mut con, [mut bob, mut carol]) = start_line(["bob", "carol"]);
    let replies = at_once(&mut con, &["LOCK.RELEASE lock me", "LOCK.RELEASE lock bob"]);
    assert_eq!(replies, [Value::Int(0), Value::Int(0)]);
    assert_one_answer(&mut bob);
    carol.assert_has_lock(&mut con, "carol");
}

#[test]
fn a_lock_that_vanishes_again_in_the_turn_of_its_grant_is_passed_on() {
    for vanish in ["DEL lock", "PEXPIRE lock -1", "FLUSHALL ASYNC", "MOVE lock 1", "SWAPDB 0 1"] {
        for free in FREEING {
            let (_server, mut con, [mut bob, mut carol, _dave]) = start_line(["bob", "carol", "dave"]);
            at_once(&mut con, &[free, vanish]);
            run(&mut con, "SELECT 0");
            assert_one_answer(&mut bob);
            if info(&mut con, "lock").is_held_by("bob") {
                // Without jobs of the server's, who is freed twice in a turn is handed over once.
                assert_eq!(free, "DEL lock", "{vanish}");
                assert_eq!(line(&mut con), ["carol", "dave"], "{vanish}");
                continue;
            }
            carol.assert_has_lock(&mut con, "carol");
            assert_eq!(line(&mut con), ["dave"], "{free}, {vanish}");
        }
    }
}

#[test]
fn a_lock_overwritten_in_the_turn_of_its_grant_refuses_the_rest() {
    for free in FREEING {
        let (_server, mut con, [mut bob, mut carol, mut dave]) = start_line(["bob", "carol", "dave"]);
        at_once(&mut con, &[free, "SET lock 1"]);
        // It was granted before, or refused with the others.
        let _ = bob.reply();
        for waiter in [&mut carol, &mut dave] {
            assert!(waiter.error().starts_with("WRONGTYPE "), "{free}");
        }
        [bob, carol, dave].iter_mut().for_each(Waiter::assert_in_step);
        assert_eq!(info_field(&mut con, "lock", "lock_waiting"), 0, "{free}");
    }
}

/// What is granted can't be taken back during a pause: the next has it when the pause ends.
#[test]
fn who_goes_in_a_turn_that_pauses_writes_passes_its_grant_on_after_the_pause() {
    for befall in ["CLIENT KILL ID", "CLIENT UNBLOCK"] {
        let (server, mut con, [bob, mut carol]) = start_line(["bob", "carol"]);
        let befall = format!("{befall} {}", bob.id);
        let paused_until = now_ms() + 300;
        at_once(&mut con, &["MULTI", "LOCK.RELEASE lock me", "CLIENT PAUSE 300 WRITE", "EXEC", &befall]);
        carol.assert_has_lock(&mut con, "carol");
        assert!(now_ms() >= paused_until, "{befall}");
        server.assert_alive();
    }
}

#[test]
fn a_line_of_which_all_are_killed_with_the_release_leaves_a_free_lock() {
    let (server, mut con, mut waiters) = start_line(["bob", "carol", "dave", "bob"]);
    let mut listener = Listener::on(&server);
    let kills: Vec<_> = waiters.iter().map(|waiter| format!("CLIENT KILL ID {}", waiter.id)).collect();
    let lines: Vec<_> =
        ["LOCK.RELEASE lock me"].into_iter().chain(kills.iter().map(String::as_str)).collect();
    at_once(&mut con, &lines);
    waiters.iter_mut().for_each(Waiter::assert_hung_up);
    assert_eq!(listener.next(), Message::unlock("lock"));
    assert_free(&mut con, "lock");
    assert_eq!(listener.heard(), []);
}

#[test]
fn all_who_are_killed_with_their_grants_pass_them_on() {
    for free in FREEING {
        let (_server, mut con, [mut bob, mut carol, mut dave]) = start_line(["bob", "carol", "dave"]);
        let (kill_bob, kill_carol) =
            (format!("CLIENT KILL ID {}", bob.id), format!("CLIENT UNBLOCK {} ERROR", carol.id));
        at_once(&mut con, &[free, &kill_bob, &kill_carol]);
        bob.assert_hung_up();
        assert!(carol.error().starts_with("UNBLOCKED "));
        dave.assert_has_lock(&mut con, "dave");
        carol.assert_in_step();
    }
}

#[test]
fn who_goes_in_the_transaction_that_frees_the_lock_passes_it_on() {
    for befall in ["CLIENT KILL ID", "CLIENT UNBLOCK"] {
        let (_server, mut con, [bob, mut carol]) = start_line(["bob", "carol"]);
        let lines = ["MULTI", "LOCK.RELEASE lock me", &format!("{befall} {}", bob.id), "EXEC"];
        at_once(&mut con, &lines);
        carol.assert_has_lock(&mut con, "carol");
    }
}

/// An owner with two requests in line: one of its clients is gone, the other is not.
#[test]
fn who_has_another_request_in_line_keeps_the_lock_with_what_is_left() {
    for free in FREEING {
        let (_server, mut con, [mut one, mut carol, mut two]) = start_line(["bob", "carol", "bob"]);
        at_once(&mut con, &[free, &format!("CLIENT KILL ID {}", one.id)]);
        one.assert_hung_up();
        // Its second request was answered with the first, or is a first one in its own turn.
        if info(&mut con, "lock").is_held_by("carol") {
            carol.assert_has_lock(&mut con, "carol");
            assert_eq!(line(&mut con), ["bob"], "{free}");
            release(&mut con, "lock", "carol");
        }
        assert_eq!(two.granted().holds, 1, "{free}: nobody knows of another hold");
        two.assert_in_step();
        let held = info(&mut con, "lock");
        assert!(held.is_held_by("bob") && held.holds == 1, "{free}: {held:?}");
        assert_eq!(release(&mut con, "lock", "bob"), Some(0));
    }
}

#[test]
fn the_last_in_line_who_goes_with_its_grant_leaves_a_free_lock() {
    for befall in ["CLIENT KILL ID", "CLIENT UNBLOCK"] {
        for free in FREEING {
            let (server, mut con, [bob]) = start_line(["bob"]);
            let mut listener = Listener::on(&server);
            at_once(&mut con, &[free, &format!("{befall} {}", bob.id)]);
            assert_eq!(listener.next(), Message::unlock("lock"), "{free}, {befall}");
            assert_free(&mut con, "lock");
            assert_eq!(listener.heard(), [], "{free}, {befall}");
            assert_eq!(acquire(&mut con, "lock", "you", 30_000).holds, 1);
        }
    }
}

/// Stops the server, and returns when it stands still: until then it might take up the first of what is sent.
fn freeze(server: &Server) {
    server.freeze();
    let status = format!("/proc/{}/status", server.pid());
    eventually(PATIENCE, || fs::read_to_string(&status).unwrap().contains("(stopped)").then_some(()));
}

/// Waits until the end of a connection has come to a server that stands still.
fn await_hangup(server: &Server) {
    let server_side = format!(":{:04X}", server.port());
    eventually(PATIENCE, || {
        fs::read_to_string("/proc/net/tcp").unwrap().lines().find_map(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            (fields[1].ends_with(&server_side) && fields[3] == CLOSE_WAIT).then_some(())
        })
    });
}

/// The state of a connection that the other side has closed.
const CLOSE_WAIT: &str = "08";

/// The server finds the release and the end of the connection at once, in either order.
#[test]
fn who_hangs_up_in_the_turn_of_its_grant_passes_it_on() {
    type Act = fn(&mut Connection, Waiter);
    fn send_release(con: &mut Connection) {
        con.send_packed_command(&command("LOCK.RELEASE lock me").get_packed_command()).unwrap();
    }
    let orders: [Act; 2] = [
        |con, bob| {
            send_release(con);
            drop(bob);
        },
        |con, bob| {
            drop(bob);
            send_release(con);
        },
    ];
    let (server, mut con) = start();
    for round in 0..40 {
        let [bob, mut carol] = form_line(&server, &mut con, 30_000, ["bob", "carol"]);
        freeze(&server);
        orders[round % 2](&mut con, bob);
        await_hangup(&server);
        server.thaw();
        assert_eq!(con.recv_response(), Ok(Value::Int(0)));
        carol.assert_has_lock(&mut con, "carol");
        assert_eq!(line(&mut con), Vec::<String>::new());
        release(&mut con, "lock", "carol");
    }
}

/// The server's thread sleeps through the time-out, so that no timer comes first.
#[test]
fn who_is_granted_as_its_time_is_up_has_either_the_lock_or_not() {
    for free in FREEING {
        let (server, mut con) = start();
        acquire(&mut con, "lock", "me", 30_000);
        let mut bob = Waiter::join(&server, "LOCK.ACQUIRE lock bob 60000 BLOCK 500");
        let mut carol = Waiter::join_for(&server, "carol");
        at_once(&mut con, &["DEBUG SLEEP 0.7", free]);
        let answer = bob.answer();
        bob.assert_in_step();
        let holder = if answer.holds == 1 { "bob" } else { "carol" };
        assert_held(&mut con, "lock", holder);
        if holder == "bob" {
            assert_eq!(line(&mut con), ["carol"]);
            release(&mut con, "lock", "bob");
        }
        carol.assert_has_lock(&mut con, "carol");
    }
}

/// The lease of a grant is over before the server gets round to anything else.
#[test]
fn a_grant_whose_lease_has_ended_unnoticed_is_followed_by_the_next() {
    let (server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    let mut bob = Waiter::join(&server, "LOCK.ACQUIRE lock bob 10 BLOCK 0");
    let mut carol = Waiter::join_for(&server, "carol");
    at_once(&mut con, &["LOCK.RELEASE lock me", "DEBUG SLEEP 0.1"]);
    assert_eq!(bob.granted().holds, 1);
    carol.assert_has_lock(&mut con, "carol");
    bob.assert_in_step();
}

#[test]
fn a_crowd_of_which_half_are_killed_with_their_grants_is_served() {
    const WAITERS: usize = 200;
    let server = Server::with_module().start();
    let mut con = server.connect();
    acquire(&mut con, "lock", "me", 30_000);
    let mut waiters: Vec<_> = (0..WAITERS).map(|_| Waiter::connect(&server)).collect();
    for (number, waiter) in waiters.iter_mut().enumerate() {
        waiter.send(&[&format!("LOCK.ACQUIRE lock owner-{number} 60000 BLOCK 0")]);
        await_waiting(&mut con, number as i64 + 1);
    }
    let kills: Vec<_> = waiters.iter().step_by(2).map(|w| format!("CLIENT KILL ID {}", w.id)).collect();
    let lines: Vec<_> =
        ["LOCK.RELEASE lock me"].into_iter().chain(kills.iter().map(String::as_str)).collect();
    at_once(&mut con, &lines);
    for number in (1..WAITERS).step_by(2) {
        assert_eq!(waiters[number].granted().holds, 1);
        let owner = format!("owner-{number}");
        assert!(info(&mut con, "lock").is_held_by(&owner));
        assert_eq!(release(&mut con, "lock", &owner), Some(0));
    }
    assert_free(&mut con, "lock");
}

/// The lock that was handed over is written over by another that was, before anybody is told of either.
#[test]
fn who_is_handed_a_lock_that_another_is_renamed_to_is_told_all_the_same() {
    for edit in ["RENAME from lock", "COPY from lock REPLACE"] {
        let (server, mut con, [mut bob]) = start_line(["bob"]);
        acquire(&mut con, "from", "me", 30_000);
        let mut carol = Waiter::join(&server, "LOCK.ACQUIRE from carol 60000 BLOCK 0");
        at_once(&mut con, &["LOCK.RELEASE lock me", "LOCK.RELEASE from me", edit]);
        bob.granted();
        carol.granted();
        bob.assert_in_step();
        carol.assert_in_step();
        assert_held(&mut con, "lock", "carol");
    }
}

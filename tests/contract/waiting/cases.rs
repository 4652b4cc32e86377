//! What went wrong for those who waited in other lock services, one test each.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use redis::cmd;

use super::waiter::*;
use crate::helpers::*;

/// These many clients fit into the limit on open files of a usual shell, on both sides.
const CROWD: usize = 2_000;

#[test]
fn a_line_does_not_stand_still_when_the_holder_has_died() {
    let (server, mut con) = start();
    let mut holder = Waiter::connect(&server);
    holder.send(&["LOCK.ACQUIRE lock me 1000"]);
    holder.granted();
    let end: i64 = call(&mut con, "PEXPIRETIME lock");
    let mut waiters = ["bob", "carol", "dave"].map(|owner| Waiter::join_for(&server, owner));
    drop(holder);
    assert_eq!(waiters[0].granted().holds, 1);
    let late = now_ms() - end;
    assert!((0..SLACK_MS).contains(&late), "{late} ms after the end of the lease");
    assert_eq!(line(&mut con), ["carol", "dave"]);
}

#[test]
fn a_first_in_line_that_has_died_does_not_hold_the_others_up() {
    let (_server, mut con, [bob, mut carol]) = start_line_behind(300, ["bob", "carol"]);
    let end: i64 = call(&mut con, "PEXPIRETIME lock");
    drop(bob);
    carol.assert_has_lock(&mut con, "carol");
    let late = now_ms() - end;
    assert!((0..SLACK_MS).contains(&late), "{late} ms after the end of the lease");
}

#[test]
fn a_crowd_of_waiters_is_granted_on_as_many_names_and_on_one() {
    let (server, mut con) = start();
    let mut waiters: Vec<_> = (0..CROWD).map(|_| Waiter::connect(&server)).collect();
    let mut tokens = Vec::new();

    let mut pipe = redis::pipe();
    for number in 0..CROWD {
        pipe.cmd("LOCK.ACQUIRE").arg(number).arg("me").arg(60_000).ignore();
    }
    pipe.exec(&mut con).unwrap();
    for (number, waiter) in waiters.iter_mut().enumerate() {
        waiter.send(&[&format!("LOCK.ACQUIRE {number} owner-{number} 60000 BLOCK 0")]);
    }
    await_waiting(&mut con, CROWD as i64);
    let mut pipe = redis::pipe();
    for number in 0..CROWD {
        pipe.cmd("LOCK.RELEASE").arg(number).arg("me").ignore();
    }
    pipe.exec(&mut con).unwrap();
    tokens.extend(waiters.iter_mut().map(|waiter| waiter.granted().token));

    acquire(&mut con, "lock", "me", 60_000);
    for (number, waiter) in waiters.iter_mut().enumerate() {
        waiter.send(&[&format!("LOCK.ACQUIRE lock owner-{number} 60000 BLOCK 0")]);
    }
    await_waiting(&mut con, CROWD as i64);
    let order = line(&mut con);
    assert_eq!(release(&mut con, "lock", "me"), Some(0));
    for owner in &order {
        assert_eq!(release(&mut con, "lock", owner), Some(0), "{owner} was not granted in its turn");
    }
    tokens.extend(waiters.iter_mut().map(|waiter| waiter.granted().token));
    assert_free(&mut con, "lock");

    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 2 * CROWD, "each grant has a token of its own");
    waiters.iter_mut().step_by(100).for_each(Waiter::assert_in_step);
}

#[test]
fn a_crowd_whose_time_is_up_at_once_is_told_and_forgotten() {
    let (server, mut con) = start();
    acquire(&mut con, "lock", "me", 60_000);
    let mut waiters: Vec<_> = (0..CROWD).map(|_| Waiter::connect(&server)).collect();
    for (number, waiter) in waiters.iter_mut().enumerate() {
        waiter.send(&[&format!("LOCK.ACQUIRE lock owner-{number} 60000 BLOCK 500")]);
    }
    for waiter in &mut waiters {
        waiter.denied();
    }
    assert_eq!(info_field(&mut con, "lock", "lock_waiting"), 0);
    assert_eq!(info_field(&mut con, "lock", "lock_wait_timed_out"), CROWD as i64);
    waiters.iter_mut().step_by(100).for_each(Waiter::assert_in_step);
}

#[test]
fn a_crowd_that_hangs_up_at_once_is_forgotten() {
    let (server, mut con) = start();
    acquire(&mut con, "lock", "me", 60_000);
    let mut waiters: Vec<_> = (0..CROWD).map(|_| Waiter::connect(&server)).collect();
    for (number, waiter) in waiters.iter_mut().enumerate() {
        waiter.send(&[&format!("LOCK.ACQUIRE lock owner-{number} 60000 BLOCK 0")]);
    }
    await_waiting(&mut con, CROWD as i64);
    drop(waiters);
    await_waiting(&mut con, 0);
    assert_eq!(info_field(&mut con, "lock", "lock_wait_gone"), CROWD as i64);
    release(&mut con, "lock", "me");
    assert_free(&mut con, "lock");
}

#[test]
fn a_client_that_gave_up_is_never_granted() {
    let (server, mut con) = start();
    for round in 0..100 {
        let [bob, mut carol] = form_line(&server, &mut con, 30_000, ["bob", "carol"]);
        if round % 2 == 0 {
            drop(bob);
            await_line(&mut con, &["carol"]);
            release(&mut con, "lock", "me");
        } else {
            at_once(&mut con, &[&format!("CLIENT KILL ID {}", bob.id), "LOCK.RELEASE lock me"]);
        }
        assert_eq!(carol.granted().holds, 1);
        assert!(info(&mut con, "lock").is_held_by("carol"), "round {round}");
        assert_eq!(release(&mut con, "lock", "carol"), Some(0));
    }
}

/// The unlock may come before the request to wait, after it, or in the same turn.
#[test]
fn an_unlock_between_try_and_wait_is_not_missed() {
    const ROUNDS: usize = 4_000;
    let (server, mut con) = start();
    let start_together = Barrier::new(2);
    thread::scope(|scope| {
        let (server, start_together) = (&server, &start_together);
        scope.spawn(move || {
            let mut rival = server.connect();
            for round in 0..ROUNDS {
                start_together.wait();
                // Offsets of some microseconds, without a clock.
                (0..round % 64 * 50).for_each(|_| std::hint::spin_loop());
                let granted = acquire_with(&mut rival, "lock", "rival", 60_000, "BLOCK 20000");
                assert_eq!(granted.holds, 1, "round {round}: waited for the lease");
                assert_eq!(release(&mut rival, "lock", "rival"), Some(0));
                start_together.wait();
            }
        });
        for _ in 0..ROUNDS {
            assert_eq!(acquire(&mut con, "lock", "me", 60_000).holds, 1);
            start_together.wait();
            assert_eq!(release(&mut con, "lock", "me"), Some(0));
            start_together.wait();
        }
    });
    assert_free(&mut con, "lock");
    assert_eq!(info_field(&mut con, "lock", "lock_expired"), 0);
}

#[test]
fn many_who_wait_for_each_other_are_inside_one_at_a_time() {
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 300;
    let (server, mut con) = start();
    let inside = std::sync::atomic::AtomicBool::new(false);
    let last = std::sync::atomic::AtomicI64::new(0);
    thread::scope(|scope| {
        use std::sync::atomic::Ordering::SeqCst;
        for owner in 0..CLIENTS {
            let (server, inside, last) = (&server, &inside, &last);
            scope.spawn(move || {
                let mut con = server.connect();
                for _ in 0..ROUNDS {
                    let granted = acquire_with(&mut con, "lock", owner, 60_000, "BLOCK 20000");
                    assert_eq!(granted.holds, 1);
                    assert!(!inside.swap(true, SeqCst), "two are inside");
                    assert!(last.swap(granted.token, SeqCst) < granted.token, "a token from the past");
                    inside.store(false, SeqCst);
                    assert_eq!(release(&mut con, "lock", owner), Some(0));
                }
            });
        }
    });
    assert_free(&mut con, "lock");
    assert_eq!(info_field(&mut con, "lock", "lock_waiting"), 0);
}

/// The CPU time of a second in which nothing happens.
fn idle_second(server: &redis_lock_testkit::Server) -> Duration {
    let (before, begin) = (server.cpu(), Instant::now());
    thread::sleep(Duration::from_secs(1));
    (server.cpu() - before).div_f64(begin.elapsed().as_secs_f64())
}

#[test]
fn idle_waiters_burn_no_cpu() {
    let (server, mut con) = start();
    let mut waiters: Vec<_> = (0..CROWD).map(|_| Waiter::connect(&server)).collect();
    acquire(&mut con, "lock", "me", 600_000);
    let without = idle_second(&server);
    for (number, waiter) in waiters.iter_mut().enumerate() {
        let timeout = [0, 300_000 + number][number % 2];
        waiter.send(&[&format!("LOCK.ACQUIRE lock owner-{number} 60000 BLOCK {timeout}")]);
    }
    await_waiting(&mut con, CROWD as i64);
    let with = idle_second(&server);
    assert!(with < without + Duration::from_millis(50), "{with:?} a second, and {without:?} without");
}

/// The holder asks again while its lease ends, and somebody waits.
#[test]
fn a_re_entry_at_the_instant_of_expiry_makes_no_second_holder() {
    const ROUNDS: usize = 40;
    const LANES: usize = 50;
    let (server, mut con) = start();
    let mut waiters: Vec<_> = (0..LANES).map(|_| Waiter::connect(&server)).collect();
    let mut kept = 0;
    for round in 0..ROUNDS {
        let mut takes = redis::pipe();
        for lane in 0..LANES {
            takes.cmd("LOCK.ACQUIRE").arg(lane).arg("a").arg(60_000).ignore();
        }
        takes.exec(&mut con).unwrap();
        for (lane, waiter) in waiters.iter_mut().enumerate() {
            waiter.send(&[&format!("LOCK.ACQUIRE {lane} b 60000 BLOCK 0")]);
        }
        await_waiting(&mut con, LANES as i64);
        let mut ends = redis::pipe();
        let mut asks = redis::pipe();
        for lane in 0..LANES {
            ends.cmd("PEXPIRE").arg(lane).arg(1 + lane % 3).ignore();
            asks.cmd("LOCK.ACQUIRE").arg(lane).arg("a").arg(60_000);
        }
        // The leases end before these requests, after them, and in between.
        ends.exec(&mut con).unwrap();
        thread::sleep(Duration::from_micros(100 * (round % 30) as u64));
        let replies: Vec<Vec<i64>> = asks.query(&mut con).unwrap();
        for (lane, reply) in replies.iter().enumerate() {
            let key = lane.to_string();
            let holder = if reply[0] > 0 { "a" } else { "b" };
            let held = info(&mut con, &key);
            assert!(held.is_held_by(holder), "round {round}, {key}: {reply:?}, {held:?}");
            let fields: Vec<String> = cmd("HKEYS").arg(&key).query(&mut con).unwrap();
            assert_eq!(fields.len(), 2, "round {round}, {key}: {fields:?}");
            if holder == "a" {
                kept += 1;
                assert_eq!(reply[0], 2, "round {round}, {key}");
                assert_eq!(release_to(&mut con, &key, "a", 0), Some(0));
            }
            let granted = waiters[lane].granted();
            assert!(granted.token > held.token || holder == "b", "round {round}, {key}");
            assert_eq!(release(&mut con, &key, "b"), Some(0));
        }
    }
    assert!((1..ROUNDS * LANES).contains(&kept), "{kept} of {} came in time", ROUNDS * LANES);
}

/// Each lease ends in the very millisecond in which the one who waits for it gives up.
#[test]
fn who_gives_up_at_the_end_of_the_lease_has_the_lock_or_knows_that_not() {
    const LANES: usize = 100;
    let (server, mut con) = start();
    let mut waiters: Vec<_> = (0..LANES).map(|_| Waiter::connect(&server)).collect();
    for round in 0..5 {
        let mut takes = redis::pipe();
        for lane in 0..LANES {
            takes.cmd("LOCK.ACQUIRE").arg(lane).arg("me").arg(500).ignore();
        }
        takes.exec(&mut con).unwrap();
        let end: i64 = call(&mut con, "PEXPIRETIME 0");
        for (lane, waiter) in waiters.iter_mut().enumerate() {
            let timeout = (end - now_ms() + lane as i64 % 3).max(1);
            waiter.send(&[&format!("LOCK.ACQUIRE {lane} bob 60000 BLOCK {timeout}")]);
        }
        for (lane, waiter) in waiters.iter_mut().enumerate() {
            let answer = waiter.answer();
            waiter.assert_in_step();
            let key = lane.to_string();
            let has_it = info(&mut con, &key).is_held_by("bob");
            assert_eq!(answer.holds == 1, has_it, "round {round}, {key}: {answer:?}");
        }
        run(&mut con, "FLUSHALL");
    }
}

#[test]
fn a_line_of_very_short_leases_is_served_to_its_end() {
    const WAITERS: usize = 200;
    let (server, mut con) = start();
    acquire(&mut con, "lock", "me", 60_000);
    let mut waiters: Vec<_> = (0..WAITERS).map(|_| Waiter::connect(&server)).collect();
    for (number, waiter) in waiters.iter_mut().enumerate() {
        waiter.send(&[&format!("LOCK.ACQUIRE lock owner-{number} {} BLOCK 0", 1 + number % 2)]);
    }
    await_waiting(&mut con, WAITERS as i64);
    run(&mut con, "LOCK.RELEASE lock me");
    let mut tokens: Vec<_> = waiters.iter_mut().map(|waiter| waiter.granted().token).collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), WAITERS);
    waiters.iter_mut().for_each(Waiter::assert_in_step);
    assert_eq!(info_field(&mut con, "lock", "lock_handed_over"), WAITERS as i64);
}

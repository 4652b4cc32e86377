//! In Cluster: a line belongs to its key's slot, and dissolves when the slot leaves.

use redis::Connection;
use redis_lock_testkit::{Server, eventually};

use super::waiter::*;
use crate::helpers::*;

/// The slot of the key `lock`, by CLUSTER KEYSLOT.
fn slot_of_lock(con: &mut Connection) -> i64 {
    call(con, "CLUSTER KEYSLOT lock")
}

fn start_node() -> (Server, Connection) {
    let server = Server::with_module()
        .config("cluster-enabled", "yes")
        .config("cluster-require-full-coverage", "no")
        .start();
    let con = server.connect();
    (server, con)
}

/// Two nodes that know each other, of which the first serves every slot.
fn start_pair() -> [(Server, Connection); 2] {
    let (first, mut con) = start_node();
    let (second, mut there) = start_node();
    run(&mut con, "CLUSTER ADDSLOTSRANGE 0 16383");
    run(&mut con, &format!("CLUSTER MEET 127.0.0.1 {}", second.port()));
    for con in [&mut con, &mut there] {
        eventually(PATIENCE, || {
            let info: String = call(con, "CLUSTER INFO");
            let ready = info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:2");
            (ready && info.contains("cluster_slots_assigned:16384")).then_some(())
        });
    }
    [(first, con), (second, there)]
}

#[test]
fn a_line_is_served_as_anywhere() {
    let (server, mut con) = start_node();
    run(&mut con, "CLUSTER ADDSLOTSRANGE 0 16383");
    eventually(PATIENCE, || {
        call::<String>(&mut con, "CLUSTER INFO").contains("cluster_state:ok").then_some(())
    });
    let [mut bob, mut carol, mut dave] = form_line(&server, &mut con, 30_000, ["bob", "carol", "dave"]);
    release(&mut con, "lock", "me");
    bob.assert_has_lock(&mut con, "bob");
    run(&mut con, "PEXPIRE lock 50");
    carol.assert_has_lock(&mut con, "carol");
    run(&mut con, "DEL lock");
    dave.assert_has_lock(&mut con, "dave");
}

#[test]
fn who_waits_is_redirected_when_the_slot_has_left() {
    let [(server, mut con), (other, mut there)] = start_pair();
    let [mut bob, mut carol] = form_line(&server, &mut con, 30_000, ["bob", "carol"]);
    let (slot, id): (i64, String) = (slot_of_lock(&mut con), call(&mut there, "CLUSTER MYID"));
    run(
        &mut there,
        &format!("CLUSTER SETSLOT {slot} IMPORTING {}", call::<String>(&mut con, "CLUSTER MYID")),
    );
    run(&mut con, &format!("CLUSTER SETSLOT {slot} MIGRATING {id}"));
    run(&mut con, &format!("MIGRATE 127.0.0.1 {} lock 0 5000", other.port()));
    run(&mut there, &format!("CLUSTER SETSLOT {slot} NODE {id}"));
    run(&mut con, &format!("CLUSTER SETSLOT {slot} NODE {id}"));
    for waiter in [&mut bob, &mut carol] {
        let error = waiter.error();
        assert!(error.starts_with("MOVED "), "{error}");
        waiter.assert_in_step();
    }
    assert_eq!(info_field(&mut con, "lock", "lock_waiting"), 0);
    assert_eq!(info_field(&mut con, "lock", "lock_handed_over"), 0);
    assert_held(&mut there, "lock", "me");
    server.assert_alive();
}

#[test]
fn nothing_is_granted_of_a_slot_that_migrates_without_the_key() {
    let [(server, mut con), (_other, mut there)] = start_pair();
    let [mut bob] = form_line(&server, &mut con, 30_000, ["bob"]);
    let (slot, id): (i64, String) = (slot_of_lock(&mut con), call(&mut there, "CLUSTER MYID"));
    run(&mut con, &format!("CLUSTER SETSLOT {slot} MIGRATING {id}"));
    run(&mut con, "PEXPIRE lock 50");
    sleep_until(now_ms() + 250);
    assert_eq!(info_field(&mut con, "lock", "lock_waiting"), 1, "granted while the slot migrates");
    run(&mut con, &format!("CLUSTER SETSLOT {slot} STABLE"));
    bob.assert_has_lock(&mut con, "bob");
}

//! Loading the module into a server that has data, and unloading it.

use redis_lock_testkit::{Server, module_path};

use crate::helpers::*;
use crate::listener::{Listener, Message};

#[test]
fn a_module_that_is_loaded_later_takes_over_the_locks_in_the_data() {
    let server = Server::without_module().config("enable-module-command", "yes").start();
    let mut con = server.connect();
    let token = now_us() + 60_000_000;
    run(&mut con, &format!("HSET lock me 2 {TOKEN_FIELD} {token}"));
    run(&mut con, "PEXPIRE lock 1000");
    let end: i64 = call(&mut con, "PEXPIRETIME lock");
    run(&mut con, &format!("MODULE LOAD {}", module_path().display()));
    let mut listener = Listener::on(&server);
    assert_held(&mut con, "lock", "me");
    assert!(acquire(&mut con, "other", "me", 60_000).token > token);
    assert_eq!(listener.next(), Message::unlock("lock"));
    let late = now_ms() - end;
    assert!((0..SLACK_MS).contains(&late), "{late} ms late");
}

#[test]
fn a_module_whose_timer_stands_is_not_unloaded_and_keeps_its_locks() {
    let server = Server::with_module().config("enable-module-command", "yes").start();
    let mut con = server.connect();
    acquire(&mut con, "lock", "me", 60_000);
    let refused = refusal(&mut con, "MODULE UNLOAD lock");
    assert!(refused.contains("timer"), "{refused}");
    assert_held(&mut con, "lock", "me");
    assert_eq!(release(&mut con, "lock", "me"), Some(0));
}

#[test]
fn an_idle_module_can_be_unloaded_and_loaded_again() {
    let mut server = Server::with_module().config("enable-module-command", "yes").start();
    let mut con = server.connect();
    for _ in 0..3 {
        acquire(&mut con, "lock", "me", 60_000);
        release(&mut con, "lock", "me");
        acquire(&mut con, "lock", "me", 20);
        sleep_until(now_ms() + 50);
        run(&mut con, "MODULE UNLOAD lock");
        assert!(refusal(&mut con, "LOCK.INFO lock").starts_with("ERR unknown command"));
        run(&mut con, "SET string 1");
        run(&mut con, "DEL string");
        run(&mut con, &format!("MODULE LOAD {}", module_path().display()));
    }
    server.stop();
    assert!(!server.log().contains("crashed"), "{}", server.log());
}

#[test]
fn a_server_that_lacks_what_is_propagated_refuses_the_module() {
    for name in ["HSET", "PEXPIREAT"] {
        let started = Server::with_module().config("rename-command", &format!("{name} x{name}")).try_start();
        let error = format!("{:#}", started.expect_err("the load is refused"));
        assert!(error.contains(name), "{error}");
    }
}

//! The calls against a real server.

use std::time::Duration;

use redis::RedisResult;
use redis_lock_client::{Acquire, Attempt, Hold, Holder, Lease, Owner, Renewal};
use redis_lock_client::{force_release, release, release_all, renew};
use redis_lock_testkit::Server;

const LEASE: Duration = Duration::from_secs(30);

fn granted(attempt: Attempt) -> Hold {
    match attempt {
        Attempt::Granted(hold) => hold,
        Attempt::Denied(holder) => panic!("denied by {holder:?}"),
    }
}

#[test]
fn a_lock_is_taken_renewed_and_given_back() -> RedisResult<()> {
    let server = Server::with_module().start();
    let mut node = server.connect();
    let (me, you) = (Owner::unique(), Owner::unique());

    let hold = granted(Acquire::new("job", &me, LEASE).holds(1).cmd().query(&mut node)?);
    assert_eq!((hold.count, hold.lease), (1, Lease::Left(LEASE)));

    let denied = Acquire::new("job", &you, LEASE).cmd().query(&mut node)?;
    assert!(matches!(denied, Attempt::Denied(Holder { token, lease: Lease::Left(left) })
        if token == hold.token && left <= LEASE));

    assert_eq!(renew("job", &me, 2 * LEASE, Some(hold.token + 5)).query(&mut node), Ok(Renewal::Renewed));
    assert_eq!(renew("job", &you, LEASE, None).query(&mut node), Ok(Renewal::NotHeld));
    let again = granted(Acquire::new("job", &me, LEASE).cmd().query(&mut node)?);
    assert_eq!((again.count, again.token), (2, hold.token + 5));

    assert_eq!(release("job", &me).query(&mut node), Ok(Some(1)));
    assert_eq!(release_all("job", &me).query(&mut node), Ok(Some(0)));
    assert_eq!(release_all("job", &me).query::<Option<u64>>(&mut node), Ok(None));
    Ok(())
}

#[test]
fn a_retry_with_holds_changes_nothing() -> RedisResult<()> {
    let server = Server::with_module().start();
    let mut node = server.connect();
    let me = Owner::unique();
    let request = Acquire::new(b"\xffjob\0".as_slice(), &me, LEASE).holds(1);
    let first = granted(request.cmd().query(&mut node)?);
    let second = granted(request.cmd().query(&mut node)?);
    assert_eq!((first.count, first.token), (second.count, second.token));
    Ok(())
}

#[test]
fn a_lock_taken_by_force_is_free() -> RedisResult<()> {
    let server = Server::with_module().start();
    let mut node = server.connect();
    let me = Owner::unique();
    granted(Acquire::new("job", &me, LEASE).cmd().query(&mut node)?);
    assert_eq!(force_release("job").query(&mut node), Ok(true));
    assert_eq!(force_release("job").query(&mut node), Ok(false));
    assert_eq!(renew("job", &me, LEASE, None).query(&mut node), Ok(Renewal::NotHeld));
    Ok(())
}

fn waiters(node: &mut redis::Connection) -> RedisResult<i64> {
    let info: std::collections::HashMap<String, redis::Value> =
        redis::cmd("LOCK.INFO").arg("job").query(node)?;
    Ok(redis::from_redis_value(info["waiters"].clone())?)
}

#[test]
fn who_waits_in_line_gets_the_lock_that_is_given_back() -> RedisResult<()> {
    let server = Server::with_module().start();
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    let (me, you) = (Owner::unique(), Owner::unique());
    let first = granted(Acquire::new("job", &me, LEASE).cmd().query(&mut holder)?);

    let impatient = Acquire::new("job", &you, LEASE).wait(Duration::from_millis(1));
    assert!(matches!(impatient.cmd().query(&mut waiter)?, Attempt::Denied(_)));

    let next = std::thread::spawn(move || {
        Acquire::new("job", &you, LEASE).wait(LEASE).cmd().query::<Attempt>(&mut waiter)
    });
    while waiters(&mut holder)? == 0 {
        std::thread::yield_now();
    }
    assert_eq!(release_all("job", &me).query(&mut holder), Ok(Some(0)));
    let hold = granted(next.join().expect("no panic")?);
    assert!(hold.token > first.token);
    Ok(())
}

//! Clients that wait in line, and what tests ask about a line.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::{Connection, RedisResult, ToRedisArgs, Value, cmd};
use redis_lock_testkit::{Server, eventually};

use crate::helpers::*;

/// The lease for which [`Waiter::join_for`] asks: another than that of the first holder.
pub const WAITERS_TTL: i64 = 60_000;

/// How long anything may take that happens at once.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A client whose LOCK.ACQUIRE waits.
pub struct Waiter {
    con: Connection,
    pub id: i64,
}

impl Waiter {
    pub fn connect(server: &Server) -> Self {
        let mut con = server.connect();
        let id = call(&mut con, "CLIENT ID");
        Self { con, id }
    }

    /// Waits for `lock` without end, in the name of `owner`; is in line when this returns.
    #[track_caller]
    pub fn join_for(server: &Server, owner: &str) -> Self {
        Self::join(server, &format!("LOCK.ACQUIRE lock {owner} {WAITERS_TTL} BLOCK 0"))
    }

    /// Sends a request that has to wait; is in line when this returns.
    #[track_caller]
    pub fn join(server: &Server, request: &str) -> Self {
        let mut admin = server.connect();
        let before = info_field(&mut admin, "lock", "lock_waiting");
        let mut waiter = Self::connect(server);
        waiter.send(&[request]);
        await_waiting(&mut admin, before + 1);
        waiter
    }

    /// Sends these in one write.
    pub fn send(&mut self, lines: &[&str]) {
        let packed: Vec<u8> = lines.iter().flat_map(|line| command(line).get_packed_command()).collect();
        self.con.send_packed_command(&packed).expect("a connection");
    }

    /// The next reply.
    pub fn reply(&mut self) -> RedisResult<Value> {
        self.con.recv_response().and_then(Value::extract_error)
    }

    /// The next reply, which is an acquire's.
    #[track_caller]
    pub fn answer(&mut self) -> Acquired {
        Acquired::from_reply(self.reply().expect("an acquire that is not refused"))
    }

    /// The reply to the one who got the lock.
    #[track_caller]
    pub fn granted(&mut self) -> Acquired {
        let granted = self.answer();
        assert!(granted.holds >= 1, "not granted: {granted:?}");
        granted
    }

    /// The reply to one who did not get it.
    #[track_caller]
    pub fn denied(&mut self) -> Acquired {
        let denied = self.answer();
        assert_eq!(denied.holds, 0, "not denied: {denied:?}");
        denied
    }

    /// The error that is the next reply.
    #[track_caller]
    pub fn error(&mut self) -> String {
        error_line(&self.reply().expect_err("an error"))
    }

    /// Asserts that the server has hung up, and has nothing more to say.
    #[track_caller]
    pub fn assert_hung_up(&mut self) {
        let end = self.reply().expect_err("the server hangs up");
        assert!(end.is_connection_dropped(), "{end}");
    }

    /// Asserts that each request so far has got one reply, and each reply was read.
    #[track_caller]
    pub fn assert_in_step(&mut self) {
        for word in ["one", "two"] {
            self.send(&[&format!("ECHO {word}")]);
            assert_eq!(self.reply(), Ok(Value::BulkString(word.into())));
        }
    }

    /// Asserts that it has `lock` now as a first hold for the whole of its lease, and knows it.
    #[track_caller]
    pub fn assert_has_lock(&mut self, con: &mut Connection, owner: &str) {
        let granted = self.granted();
        assert_eq!((granted.holds, granted.ttl), (1, WAITERS_TTL));
        let held = info(con, "lock");
        assert!(held.is_held_by(owner), "{owner} waits, and {held:?}");
        assert_eq!((held.holds, held.token), (1, granted.token));
        assert_lease(held.ttl, WAITERS_TTL);
        assert_eq!(hash(con, "lock").len(), 2, "{:?}", hash(con, "lock"));
        self.assert_in_step();
    }
}

/// `me` holds `lock` for half a minute, and these owners wait for it in this order.
pub fn start_line<const N: usize>(owners: [&str; N]) -> (Server, Connection, [Waiter; N]) {
    start_line_behind(30_000, owners)
}

/// As [`start_line`], behind a lease of this length.
pub fn start_line_behind<const N: usize>(ttl: i64, owners: [&str; N]) -> (Server, Connection, [Waiter; N]) {
    let (server, mut con) = start();
    let waiters = form_line(&server, &mut con, ttl, owners);
    (server, con, waiters)
}

/// Takes `lock` for `me`, and has these owners wait for it in this order. The lease begins when all wait.
pub fn form_line<const N: usize>(
    server: &Server,
    con: &mut Connection,
    ttl: i64,
    owners: [&str; N],
) -> [Waiter; N] {
    acquire(con, "lock", "me", 30_000);
    let waiters = owners.map(|owner| Waiter::join_for(server, owner));
    run(con, &format!("PEXPIRE lock {ttl}"));
    waiters
}

/// Waits until so many wait on this server, for whatever lock.
#[track_caller]
pub fn await_waiting(con: &mut Connection, count: i64) {
    eventually(PATIENCE, || (info_field(con, "lock", "lock_waiting") == count).then_some(()));
}

/// The owners in line, and for how long each has waited.
#[track_caller]
pub fn queue(con: &mut Connection, key: impl ToRedisArgs) -> Vec<(String, i64)> {
    let reply = cmd("LOCK.INFO").arg(key).arg("WAITERS").arg(1_000_000).query(con);
    let mut fields: BTreeMap<String, Value> = reply.expect("an info that is not refused");
    let line: Vec<(String, i64)> = redis::from_redis_value(fields.remove("line").expect("line")).unwrap();
    let waiters: usize = redis::from_redis_value(fields.remove("waiters").expect("waiters")).unwrap();
    assert_eq!(line.len(), waiters);
    line
}

/// The owners in line for `lock`.
#[track_caller]
pub fn line(con: &mut Connection) -> Vec<String> {
    queue(con, "lock").into_iter().map(|(owner, _)| owner).collect()
}

/// Waits until the line for `lock` is this.
#[track_caller]
pub fn await_line(con: &mut Connection, owners: &[&str]) {
    eventually(PATIENCE, || (line(con) == owners).then_some(()));
}

/// The replies to what is sent in one write, so that the server does it all in one turn of its event loop.
#[track_caller]
pub fn at_once(con: &mut Connection, lines: &[&str]) -> Vec<Value> {
    let mut pipe = redis::pipe();
    lines.iter().for_each(|line| {
        pipe.add_command(command(line));
    });
    pipe.query(con).unwrap_or_else(|error| panic!("{lines:?}: {error}"))
}

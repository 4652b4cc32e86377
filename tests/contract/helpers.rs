//! The commands as functions, and the questions that many tests ask.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::{Cmd, Connection, FromRedisValue, RedisError, ToRedisArgs, Value, cmd};
use redis_lock_testkit::Server;

/// The field of the lock's hash that carries the fencing token.
pub const TOKEN_FIELD: &str = "lock:token";

/// The largest number that the commands take, besides leases.
pub const MAX_NUMBER: i64 = (1 << 53) - 1;

/// How far a reading of a lease may lie below what was set, on a slow machine.
pub const SLACK_MS: i64 = 5_000;

/// A server with the module, and a connection to it.
pub fn start() -> (Server, Connection) {
    let server = Server::with_module().start();
    let con = server.connect();
    (server, con)
}

/// A command as one would type it; words are split at white space.
pub fn command(line: &str) -> Cmd {
    let mut words = line.split_whitespace();
    let mut command = cmd(words.next().expect("a command has a name"));
    command.arg(words.collect::<Vec<_>>());
    command
}

/// The reply to what one would type.
#[track_caller]
pub fn call<T: FromRedisValue>(con: &mut Connection, line: &str) -> T {
    command(line).query(con).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// Runs what one would type, and cares only that it works.
#[track_caller]
pub fn run(con: &mut Connection, line: &str) {
    call::<Value>(con, line);
}

/// The error that is the reply to what one would type.
#[track_caller]
pub fn refusal(con: &mut Connection, line: &str) -> String {
    refusal_of(con, &command(line))
}

/// The error that is the reply to a command.
#[track_caller]
pub fn refusal_of(con: &mut Connection, command: &Cmd) -> String {
    match command.query::<Value>(con) {
        Err(error) => error_line(&error),
        Ok(reply) => panic!("{} was not refused: {reply:?}", readable(command)),
    }
}

/// An error as it went over the wire.
pub fn error_line(error: &RedisError) -> String {
    assert!(!error.is_unrecoverable_error(), "not an error reply: {error}");
    format!("{} {}", error.code().unwrap_or_default(), error.detail().unwrap_or_default())
}

fn readable(command: &Cmd) -> String {
    let packed = command.get_packed_command();
    let end = packed.len().min(200);
    String::from_utf8_lossy(&packed[..end]).replace("\r\n", " ")
}

/// The reply of LOCK.ACQUIRE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acquired {
    pub holds: i64,
    pub ttl: i64,
    pub token: i64,
}

impl Acquired {
    #[track_caller]
    pub fn from_reply(reply: Value) -> Self {
        let (holds, ttl, token) = redis::from_redis_value(reply).expect("three integers");
        Self { holds, ttl, token }
    }
}

#[track_caller]
pub fn acquire(con: &mut Connection, key: impl ToRedisArgs, owner: impl ToRedisArgs, ttl: i64) -> Acquired {
    acquire_with(con, key, owner, ttl, "")
}

/// An acquire with options, such as `HOLDS 2 TOKEN 17`.
#[track_caller]
pub fn acquire_with(
    con: &mut Connection,
    key: impl ToRedisArgs,
    owner: impl ToRedisArgs,
    ttl: i64,
    options: &str,
) -> Acquired {
    let words: Vec<_> = options.split_whitespace().collect();
    let reply = cmd("LOCK.ACQUIRE").arg(key).arg(owner).arg(ttl).arg(words).query(con);
    Acquired::from_reply(reply.expect("an acquire that is not refused"))
}

#[track_caller]
pub fn renew(con: &mut Connection, key: impl ToRedisArgs, owner: impl ToRedisArgs, ttl: i64) -> i64 {
    cmd("LOCK.RENEW").arg(key).arg(owner).arg(ttl).query(con).expect("a renewal that is not refused")
}

/// Drops one hold. What is left, or nothing where the owner did not hold the lock.
#[track_caller]
pub fn release(con: &mut Connection, key: impl ToRedisArgs, owner: impl ToRedisArgs) -> Option<i64> {
    cmd("LOCK.RELEASE").arg(key).arg(owner).query(con).expect("a release that is not refused")
}

/// Drops to `holds`.
#[track_caller]
pub fn release_to(
    con: &mut Connection,
    key: impl ToRedisArgs,
    owner: impl ToRedisArgs,
    holds: i64,
) -> Option<i64> {
    let mut command = cmd("LOCK.RELEASE");
    command.arg(key).arg(owner).arg("HOLDS").arg(holds);
    command.query(con).expect("a release that is not refused")
}

#[track_caller]
pub fn force_release(con: &mut Connection, key: impl ToRedisArgs) -> i64 {
    cmd("LOCK.FORCERELEASE").arg(key).query(con).expect("a forced release that is not refused")
}

/// The reply of LOCK.INFO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    pub state: String,
    pub owner: Option<Vec<u8>>,
    pub holds: i64,
    pub ttl: i64,
    pub token: i64,
}

impl Info {
    pub fn free() -> Self {
        Self { state: "free".to_owned(), owner: None, holds: 0, ttl: -2, token: 0 }
    }

    pub fn is_held_by(&self, owner: &str) -> bool {
        self.state == "held" && self.owner.as_deref() == Some(owner.as_bytes())
    }
}

#[track_caller]
pub fn info(con: &mut Connection, key: impl ToRedisArgs) -> Info {
    let reply = cmd("LOCK.INFO").arg(key).query(con);
    let mut fields: BTreeMap<String, Value> = reply.expect("an info that is not refused");
    let mut number = |name| redis::from_redis_value(fields.remove(name).expect(name)).expect(name);
    let (holds, ttl, token) = (number("holds"), number("ttl"), number("token"));
    let state = redis::from_redis_value(fields.remove("state").expect("state")).expect("a string");
    let owner = redis::from_redis_value(fields.remove("owner").expect("owner")).expect("a string or nil");
    Info { state, owner, holds, ttl, token }
}

/// The fields of the lock's hash.
#[track_caller]
pub fn hash(con: &mut Connection, key: impl ToRedisArgs) -> BTreeMap<String, String> {
    cmd("HGETALL").arg(key).query(con).expect("a hash")
}

#[track_caller]
pub fn pttl(con: &mut Connection, key: impl ToRedisArgs) -> i64 {
    cmd("PTTL").arg(key).query(con).expect("a number")
}

/// Asserts that a lease is what was set a moment ago.
#[track_caller]
pub fn assert_lease(left: i64, set: i64) {
    assert!((set - SLACK_MS..=set).contains(&left), "{left} ms are left of {set} ms");
}

/// Asserts that `key` is a lock that `owner` holds, by trying as others would.
#[track_caller]
pub fn assert_held(con: &mut Connection, key: &str, owner: &str) {
    let held = info(con, key);
    assert!(held.is_held_by(owner), "{key} is {held:?}");
    assert_eq!(acquire(con, key, "a-stranger", 1_000).holds, 0, "{key} was given to a second owner");
}

/// Asserts that nobody holds `key`.
#[track_caller]
pub fn assert_free(con: &mut Connection, key: &str) {
    assert_eq!(info(con, key), Info::free());
}

/// All data of the server, and how many changes it has counted.
#[derive(PartialEq, Eq)]
pub struct Snapshot {
    keys: BTreeMap<Vec<u8>, (Vec<u8>, i64)>,
    changes: i64,
}

impl Snapshot {
    pub fn take(con: &mut Connection) -> Self {
        let names: Vec<Vec<u8>> = call(con, "KEYS *");
        let mut keys = BTreeMap::new();
        for name in names {
            let dump = cmd("DUMP").arg(&name).query(con).expect("the key is there");
            let end = cmd("PEXPIRETIME").arg(&name).query(con).expect("the key is there");
            keys.insert(name, (dump, end));
        }
        Self { keys, changes: info_field(con, "persistence", "rdb_changes_since_last_save") }
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} changes", self.changes)?;
        self.keys.iter().try_for_each(|(name, (dump, end))| {
            let name = String::from_utf8_lossy(name);
            let dump = String::from_utf8_lossy(dump);
            writeln!(f, "{name:.100?} until {end}: {dump:.100?}")
        })
    }
}

/// A number of INFO.
#[track_caller]
pub fn info_field(con: &mut Connection, section: &str, field: &str) -> i64 {
    let info: String = cmd("INFO").arg(section).query(con).expect("a section");
    let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let value = line.unwrap_or_else(|| panic!("no {field} in {info}"));
    value.parse().unwrap_or_else(|_| panic!("{field} is {value}"))
}

/// The wall clock in milliseconds; the servers run on this machine.
pub fn now_ms() -> i64 {
    i64::try_from(now().as_millis()).expect("the year is not that far")
}

/// The wall clock in microseconds.
pub fn now_us() -> i64 {
    i64::try_from(now().as_micros()).expect("the year is not that far")
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970")
}

/// Waits until the wall clock shows `ms`.
pub fn sleep_until(ms: i64) {
    let left = u64::try_from(ms - now_ms()).unwrap_or(0);
    std::thread::sleep(Duration::from_millis(left));
}

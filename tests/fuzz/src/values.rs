//! What stands in for the variables of the [grammar](crate::grammar).

use std::time::{SystemTime, UNIX_EPOCH};

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

/// Databases that are played in.
pub const DATABASES: u8 = 3;

/// Names of locks that are touched by nothing but the module's commands, and what takes whole
/// databases.
pub const PURE_KEYS: [&[u8]; 3] = [b"pure:1", b"pure:{2}", b"pure:\0\xff"];

/// Names that anything happens to.
const KEYS: [&[u8]; 8] =
    [b"k1", b"k2", b"{k3}", b"", b"\0", b"k\xff\r\n6", b"lock:token", "schloß 🔒".as_bytes()];

/// Names of the form of Redisson's owners.
const REDISSON_OWNERS: [&[u8]; 3] = [
    b"8743c9c0-0795-4907-87fd-6c719a6b4586:1",
    b"8743c9c0-0795-4907-87fd-6c719a6b4586:2",
    b"f47ac10b-58cc-4372-a567-0e02b2c3d479:18446744073709551616",
];

const OWNERS: [&[u8]; 6] = [b"a", b"b", b"\0", b"\xff\xfe", b"Mode", b"%s %n {}"];

/// Owners that are refused, or nearly.
const ODD_OWNERS: [&[u8]; 5] =
    [b"", b"lock:token", b"mode", b"LOCK:TOKEN", b"8743c9c0-0795-4907-87fd-6c719a6b4586:"];

/// Integers at the edges of what is accepted, and words that look like integers.
const INTEGERS: [&str; 32] = [
    "0",
    "1",
    "2",
    "3",
    "-1",
    "-2",
    "86400000",
    "86400001",
    "9007199254740990",
    "9007199254740991",
    "9007199254740992",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
    "4294967295",
    "4294967296",
    "2147483648",
    "99999999999999999999999999999999",
    "+1",
    "-0",
    "00",
    "01",
    " 1",
    "1 ",
    "1.0",
    "1e3",
    "0x10",
    "nan",
    "",
];

/// The longest names and values: one megabyte.
pub const BIG: usize = 1 << 20;

/// Values that only the servers know.
#[derive(Debug, Default)]
pub struct Given {
    /// What DUMP answered for some keys.
    pub dumps: Vec<Vec<u8>>,
    /// The port of the second server.
    pub peer_port: u16,
}

/// A value for a variable.
///
/// # Panics
/// When the grammar has a variable of a kind that is not known here.
pub fn value(kind: &str, rng: &mut StdRng, given: &Given) -> Vec<u8> {
    match kind {
        "key" => key(rng),
        "owner" => owner(rng),
        "redisson" => pick(&REDISSON_OWNERS, rng).to_vec(),
        "ttl" => ttl(rng),
        "short" => rng.random_range(1..30).to_string().into(),
        "int" => pick(&INTEGERS, rng).as_bytes().to_vec(),
        "holds" => integer_or(rng, |rng| rng.random_range(0..5)),
        "token" => integer_or(rng, token),
        "garbage" => garbage(rng),
        "db" => rng.random_range(0..DATABASES).to_string().into(),
        "dump" => given.dumps.choose(rng).cloned().unwrap_or_default(),
        "peer" => given.peer_port.to_string().into(),
        "script" => pick(&SCRIPTS, rng).as_bytes().to_vec(),
        other => panic!("the grammar wants a {other}"),
    }
}

fn key(rng: &mut StdRng) -> Vec<u8> {
    if rng.random_ratio(1, 2_000) { vec![b'K'; BIG] } else { pick(&KEYS, rng).to_vec() }
}

/// Often the same, so that holders come back.
fn owner(rng: &mut StdRng) -> Vec<u8> {
    match rng.random_range(0..2_000) {
        0 => vec![b'o'; BIG],
        1..60 => pick(&ODD_OWNERS, rng).to_vec(),
        60..500 => pick(&OWNERS, rng).to_vec(),
        500..800 => pick(&REDISSON_OWNERS, rng).to_vec(),
        800..1_200 => REDISSON_OWNERS[0].to_vec(),
        _ => OWNERS[0].to_vec(),
    }
}

/// Mostly long leases, so that locks are found held.
fn ttl(rng: &mut StdRng) -> Vec<u8> {
    match rng.random_range(0..20) {
        0 => pick(&INTEGERS, rng).as_bytes().to_vec(),
        1..4 => rng.random_range(1..20).to_string().into(),
        _ => rng.random_range(1_000..=86_400_000).to_string().into(),
    }
}

/// Tokens are microseconds; a client may ask for one of up to a day ahead.
fn token(rng: &mut StdRng) -> u64 {
    const HOUR: u64 = 3_600_000_000;
    match rng.random_range(0..10) {
        0 => now_us() + 25 * HOUR,
        1 => now_us() + 23 * HOUR,
        2..6 => now_us() + rng.random_range(0..HOUR),
        _ => rng.random_range(0..now_us()),
    }
}

fn integer_or<T: ToString>(rng: &mut StdRng, sane: impl FnOnce(&mut StdRng) -> T) -> Vec<u8> {
    if rng.random_ratio(1, 5) {
        pick(&INTEGERS, rng).as_bytes().to_vec()
    } else {
        sane(rng).to_string().into()
    }
}

fn garbage(rng: &mut StdRng) -> Vec<u8> {
    match rng.random_range(0..200) {
        0 => vec![0; BIG],
        1..60 => pick(&INTEGERS, rng).as_bytes().to_vec(),
        _ => (0..rng.random_range(0..20)).map(|_| rng.random()).collect(),
    }
}

fn pick<'a, T: ?Sized>(from: &[&'a T], rng: &mut StdRng) -> &'a T {
    from.choose(rng).expect("a list that is not empty")
}

/// The wall clock in microseconds since 1970, from which tokens are counted.
pub fn now_us() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock set after 1970");
    u64::try_from(since_1970.as_micros()).expect("a clock set to this era")
}

/// Scripts with a key, an owner and a lease.
const SCRIPTS: [&str; 7] = [
    "return redis.call('LOCK.ACQUIRE', KEYS[1], ARGV[1], ARGV[2])",
    "return redis.pcall('LOCK.RENEW', KEYS[1], ARGV[1], ARGV[2])",
    "return redis.call('LOCK.INFO', KEYS[1])",
    "redis.setresp(3) return redis.pcall('LOCK.INFO', KEYS[1])",
    "for n = 1, 20 do redis.pcall('LOCK.ACQUIRE', KEYS[1], ARGV[1], ARGV[2], 'HOLDS', n) end \
     return redis.pcall('LOCK.RELEASE', KEYS[1], ARGV[1], 'HOLDS', 0)",
    "redis.pcall('LOCK.ACQUIRE', KEYS[1], ARGV[1], ARGV[2]) redis.call('DEL', KEYS[1]) \
     return redis.pcall('LOCK.RELEASE', KEYS[1], ARGV[1])",
    "redis.pcall('LOCK.ACQUIRE', KEYS[1], ARGV[1], ARGV[2]) redis.call('SET', KEYS[1], 'x') \
     return redis.pcall('LOCK.FORCERELEASE', KEYS[1])",
];

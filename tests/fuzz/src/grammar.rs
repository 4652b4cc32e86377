//! The language of the fuzzer: weighted lines of commands with variables.
//!
//! A line is a sequence of commands, separated by `;`, sent one after another on one connection.
//! `$key2` is a variable of the kind `key`; within a line it keeps its value.

use std::collections::HashMap;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::resp::Command;
use crate::values::{Given, value};

/// The longest time-out that BLOCK takes, in milliseconds.
const LONGEST_WAIT: u64 = (1 << 53) - 1;

/// A weight and a line.
pub type Rule = (u32, &'static str);

/// The module's commands, as they should be.
pub const LOCKS: &[Rule] = &[
    (30, "LOCK.ACQUIRE $key $owner $ttl"),
    (10, "LOCK.ACQUIRE $key $owner $ttl HOLDS $holds"),
    (6, "LOCK.ACQUIRE $key $owner $ttl TOKEN $token"),
    (4, "LOCK.ACQUIRE $key $owner $ttl TOKEN $token HOLDS $holds"),
    (2, "LOCK.ACQUIRE $key $owner $ttl HOLDS $holds HOLDS $holds2"),
    (3, "LOCK.ACQUIRE $key $owner $ttl BLOCK $short"),
    (2, "LOCK.ACQUIRE $key $owner $short BLOCK $short TOKEN $token HOLDS $holds"),
    (2, "LOCK.INFO $key WAITERS $holds"),
    (15, "LOCK.RENEW $key $owner $ttl"),
    (4, "LOCK.RENEW $key $owner $ttl TOKEN $token"),
    (20, "LOCK.RELEASE $key $owner"),
    (8, "LOCK.RELEASE $key $owner HOLDS $holds"),
    (12, "LOCK.INFO $key"),
    (1, "LOCK.INFO $key WAITERS $int"),
    (4, "LOCK.FORCERELEASE $key"),
];

/// What happens to the keys of orderly users.
pub const TIDY: &[Rule] = &[
    (10, "DEL $key"),
    (3, "UNLINK $key $key2"),
    (3, "SELECT $db"),
    (1, "FLUSHDB"),
    (2, "EXPIRE $key -1"),
    (4, "EXISTS $key $key2"),
];

/// Keys of every kind and in every state.
pub const STATES: &[Rule] = &[
    (4, "SET $key $garbage"),
    (2, "SET $key $garbage PX $short"),
    (2, "DEL $key; RPUSH $key $garbage"),
    (1, "DEL $key; SADD $key $garbage"),
    (1, "DEL $key; ZADD $key 1 $garbage"),
    (1, "DEL $key; XADD $key * f $garbage"),
    (4, "DEL $key; HSET $key name $garbage age 7"),
    (6, "DEL $key; HINCRBY $key $redisson 1; PEXPIRE $key $ttl"),
    (2, "DEL $key; HSET $key $redisson 1 $redisson2 2; PEXPIRE $key $ttl"),
    (3, "DEL $key; HSET $key mode read $redisson 1 $redisson2 1; PEXPIRE $key $ttl"),
    (2, "DEL $key; HSET $key mode write $redisson 1 lock:token $token"),
    (2, "DEL $key; HSET $key mode $garbage"),
    (3, "DEL $key; HSET $key $owner $garbage lock:token $token; PEXPIRE $key $ttl"),
    (3, "DEL $key; HSET $key $owner $int lock:token $int2; PEXPIRE $key $ttl"),
    (3, "DEL $key; HSET $key $owner 1 lock:token $garbage; PEXPIRE $key $ttl"),
    (3, "DEL $key; HSET $key $owner 1 $owner2 2 lock:token $token; PEXPIRE $key $ttl"),
    (2, "DEL $key; HSET $key lock:token $token"),
    (2, "DEL $key; HSET $key lock:token $garbage; PEXPIRE $key $ttl"),
    (3, "DEL $key; HSET $key $owner 1 lock:token $token"),
    (2, "DEL $key; HSET $key $redisson 1"),
    // A lease that has ended, on a key that nobody has looked at since.
    (
        2,
        "DEL $key; DEBUG SET-ACTIVE-EXPIRE 0; HSET $key $redisson 1; PEXPIRE $key 1; DEBUG SLEEP 0.002; \
         LOCK.ACQUIRE $key $owner $ttl; DEBUG SET-ACTIVE-EXPIRE 1",
    ),
    (
        2,
        "DEL $key; DEBUG SET-ACTIVE-EXPIRE 0; LOCK.ACQUIRE $key $owner 1; DEBUG SLEEP 0.002; \
         LOCK.RENEW $key $owner $ttl; LOCK.RELEASE $key $owner; DEBUG SET-ACTIVE-EXPIRE 1",
    ),
    (
        1,
        "DEL $key; DEBUG SET-ACTIVE-EXPIRE 0; SET $key x PX 1; DEBUG SLEEP 0.002; LOCK.INFO $key; \
         LOCK.FORCERELEASE $key; LOCK.ACQUIRE $key $owner $ttl; DEBUG SET-ACTIVE-EXPIRE 1",
    ),
];

/// What others do to the same keys.
pub const FOREIGN: &[Rule] = &[
    (6, "DEL $key"),
    (3, "UNLINK $key $key2"),
    (3, "HDEL $key $owner"),
    (2, "HDEL $key lock:token"),
    (2, "HINCRBY $key $owner $int"),
    (1, "HSET $key lock:token $int"),
    (4, "PEXPIRE $key $short"),
    (3, "PEXPIRE $key $int"),
    (2, "PEXPIREAT $key 1"),
    (3, "EXPIRE $key -1"),
    (4, "PERSIST $key"),
    (3, "RENAME $key $key2"),
    (1, "RENAMENX $key $key2"),
    (3, "COPY $key $key2 REPLACE"),
    (2, "COPY $key $key DB $db REPLACE"),
    (3, "MOVE $key $db"),
    (2, "SWAPDB $db $db2"),
    (2, "FLUSHDB"),
    (1, "FLUSHDB ASYNC"),
    (1, "FLUSHALL"),
    (2, "RESTORE $key 60000 $dump REPLACE"),
    (1, "RESTORE $key $short $dump REPLACE"),
    (1, "RESTORE $key 0 $dump"),
    (1, "RESTORE $key 1 $dump REPLACE ABSTTL"),
    (1, "SUNIONSTORE $key $key2"),
    (1, "SORT $key2 BY nosort STORE $key"),
    (1, "GETDEL $key"),
    (1, "GETEX $key PERSIST"),
    (6, "SELECT $db"),
    (2, "EXISTS $key $key2"),
    (2, "HGETALL $key"),
    (1, "SCAN 0 COUNT 100"),
    (6, "EVAL $script 1 $key $owner $ttl"),
    (1, "EVAL $script 0 $key $owner $ttl"),
];

/// What else a client can do.
pub const CLIENT: &[Rule] = &[
    (8, "MULTI"),
    (8, "EXEC"),
    (2, "DISCARD"),
    (3, "WATCH $key $key2"),
    (1, "UNWATCH"),
    (4, "MULTI; LOCK.ACQUIRE $key $owner $ttl; LOCK.INFO $key; LOCK.RELEASE $key $owner; EXEC"),
    (3, "WATCH $key; MULTI; LOCK.RENEW $key $owner $ttl; LOCK.FORCERELEASE $key; DEL $key; EXEC"),
    (2, "MULTI; LOCK.ACQUIRE $key $owner $ttl BLOCK 0; LOCK.INFO $key WAITERS 3; EXEC"),
    (3, "HELLO 3"),
    (3, "HELLO 2"),
    (2, "CLIENT TRACKING ON"),
    (1, "CLIENT TRACKING ON BCAST"),
    (2, "CLIENT TRACKING OFF"),
    (1, "CLIENT KILL TYPE normal SKIPME yes"),
    (1, "CLIENT NO-EVICT ON"),
    (1, "RESET"),
    (1, "COMMAND INFO LOCK.ACQUIRE LOCK.INFO"),
    (1, "COMMAND DOCS LOCK.RELEASE"),
    (2, "COMMAND GETKEYS LOCK.RENEW $key $owner $ttl"),
    (1, "COMMAND GETKEYS LOCK.FORCERELEASE"),
    (1, "OBJECT ENCODING $key"),
];

/// Holds up clients.
pub const PAUSES: &[Rule] = &[
    (3, "CLIENT PAUSE $short WRITE; LOCK.INFO $key"),
    (2, "CLIENT PAUSE $short ALL"),
    (1, "CLIENT UNPAUSE"),
    (
        3,
        "LOCK.ACQUIRE $key $owner 5; DEBUG SLEEP 0.01; MULTI; CLIENT PAUSE $short WRITE; \
         LOCK.ACQUIRE $key $owner2 $ttl; LOCK.INFO $key; LOCK.RELEASE $key $owner2; EXEC",
    ),
];

/// Loads the data again, in place, while clients are held up.
pub const PAUSED_RELOADS: &[Rule] =
    &[(1, "LOCK.ACQUIRE $key $owner 5; CLIENT PAUSE $short WRITE; DEBUG SLEEP 0.01; DEBUG RELOAD")];

/// What an administrator can do.
pub const ADMIN: &[Rule] = &[
    (2, "DEBUG SLEEP 0"),
    (1, "CONFIG SET lock.max-ttl $ttl"),
    (2, "CONFIG SET lock.max-ttl $garbage"),
    (8, "CONFIG SET lock.max-ttl 86400000"),
    (3, "CONFIG SET lock.channel-prefix $garbage"),
    (2, "CONFIG SET lock.channel-prefix redisson_lock__channel"),
    (2, "CONFIG SET lock.sharded-publish yes"),
    (2, "CONFIG SET lock.sharded-publish no"),
    (1, "CONFIG SET lock.sharded-publish $garbage"),
    (2, "CONFIG GET lock.*"),
    (1, "CONFIG SET notify-keyspace-events KEAd"),
    (1, "CONFIG SET notify-keyspace-events $garbage"),
    (
        1,
        "CONFIG SET maxmemory 1; LOCK.ACQUIRE $key $owner $ttl; LOCK.RELEASE $key $owner2; CONFIG SET maxmemory 0",
    ),
    (
        1,
        "CONFIG SET maxmemory-policy allkeys-random maxmemory 1; LOCK.ACQUIRE $key $owner $ttl; \
         CONFIG SET maxmemory 0 maxmemory-policy noeviction",
    ),
    (2, "INFO everything"),
    (1, "MEMORY USAGE $key"),
    (1, "DEBUG OBJECT $key"),
    (1, "SAVE"),
];

/// Loads the data again, in place.
pub const RELOADS: &[Rule] = &[(1, "DEBUG RELOAD"), (1, "DEBUG RELOAD; LOCK.ACQUIRE $key $owner $ttl")];

/// Becomes a replica of the second server, and a master again.
pub const DEMOTIONS: &[Rule] = &[
    (1, "REPLICAOF 127.0.0.1 $peer"),
    (1, "REPLICAOF 127.0.0.1 $peer; DEBUG SLEEP 0.01; LOCK.ACQUIRE $key $owner $ttl; LOCK.INFO $key"),
    (3, "REPLICAOF NO ONE"),
    (
        2,
        "REPLICAOF 127.0.0.1 $peer; LOCK.RELEASE $key $owner; REPLICAOF NO ONE; LOCK.ACQUIRE $key $owner $ttl",
    ),
    (
        1,
        "CONFIG SET replica-read-only no; LOCK.ACQUIRE $key $owner $ttl; SET $key2 x; CONFIG SET replica-read-only yes",
    ),
];

/// A line of some rules, its variables filled in.
pub fn sequence(rules: &[Rule], rng: &mut StdRng, given: &Given) -> Vec<Command> {
    fill(choose(rules, rng), rng, given)
}

/// A command of the module on one of `keys`.
pub fn lock_command(keys: Option<&[&[u8]]>, rng: &mut StdRng, given: &Given) -> Command {
    let mut command = sequence(LOCKS, rng, given).swap_remove(0);
    if let Some(key) = keys.and_then(|keys| keys.choose(rng)) {
        command[1] = key.to_vec();
    }
    command
}

fn choose(rules: &[Rule], rng: &mut StdRng) -> &'static str {
    rules.choose_weighted(rng, |(weight, _)| *weight).expect("rules with weights").1
}

fn fill(line: &str, rng: &mut StdRng, given: &Given) -> Vec<Command> {
    let mut values: HashMap<&str, Vec<u8>> = HashMap::new();
    let mut word = |word| match str::strip_prefix(word, "$") {
        None => word.as_bytes().to_vec(),
        Some(name) => {
            let kind = name.trim_end_matches(|c: char| c.is_ascii_digit());
            values.entry(name).or_insert_with(|| value(kind, rng, given)).clone()
        }
    };
    line.split(';').map(|command| command.split_ascii_whitespace().map(&mut word).collect()).collect()
}

/// Breaks a command in one place or two; its name stays.
pub fn mutate(command: &mut Command, rng: &mut StdRng, given: &Given) {
    for _ in 0..rng.random_range(1..=2) {
        let at = rng.random_range(1..=command.len());
        match rng.random_range(0..8) {
            0 => command.truncate(at),
            1 => command.insert(at, value("garbage", rng, given)),
            2 => command.insert(at, value("int", rng, given)),
            3 => command
                .extend(["HOLDS", "TOKEN", "WAITERS", "XX"].choose(rng).map(|word| word.as_bytes().to_vec())),
            4 => command[0].make_ascii_lowercase(),
            _ if at == command.len() => {}
            5 => command[at] = value("garbage", rng, given),
            6 => command[at].make_ascii_lowercase(),
            _ => drop(command.remove(at)),
        }
    }
    shorten_wait(command);
}

/// Who waits in line for longer than the fuzzer has patience looks like a server that hangs.
fn shorten_wait(command: &mut Command) {
    let is_block = |word: &Vec<u8>| word.eq_ignore_ascii_case(b"BLOCK");
    let Some(timeout) = command.iter().rposition(is_block).and_then(|at| command.get_mut(at + 1)) else {
        return;
    };
    let wait = str::from_utf8(timeout).ok().and_then(|digits| digits.parse::<u64>().ok());
    if wait.is_some_and(|wait| (wait == 0 || wait > 1_000) && wait <= LONGEST_WAIT) {
        *timeout = b"29".to_vec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn every_rule_can_be_filled() {
        let mut rng = StdRng::seed_from_u64(1);
        let given = Given::default();
        for rules in [LOCKS, TIDY, STATES, FOREIGN, CLIENT, ADMIN, PAUSES, PAUSED_RELOADS, RELOADS, DEMOTIONS]
        {
            for (_, line) in rules {
                let commands = fill(line, &mut rng, &given);
                assert!(commands.iter().all(|command| !command.is_empty()), "{line}");
            }
        }
    }

    #[test]
    fn a_variable_keeps_its_value_within_a_line() {
        let filled = fill("GET $token; SET $token $token2", &mut StdRng::seed_from_u64(1), &Given::default());
        assert_eq!(filled[0][1], filled[1][1]);
        assert_ne!(filled[1][1], filled[1][2]);
    }

    #[test]
    fn nobody_waits_for_long() {
        for (timeout, shortened) in
            [("0", "29"), ("1001", "29"), ("7", "7"), ("-1", "-1"), ("9007199254740992", "9007199254740992")]
        {
            let mut command = ["LOCK.ACQUIRE", "k", "a", "9", "block", timeout]
                .map(|word| word.as_bytes().to_vec())
                .to_vec();
            shorten_wait(&mut command);
            assert_eq!(command[5], shortened.as_bytes());
        }
    }

    #[test]
    fn a_mutant_keeps_its_name() {
        let mut rng = StdRng::seed_from_u64(1);
        for _ in 0..10_000 {
            let mut command = lock_command(None, &mut rng, &Given::default());
            let name = command[0].clone();
            mutate(&mut command, &mut rng, &Given::default());
            assert!(command[0].eq_ignore_ascii_case(&name));
        }
    }
}

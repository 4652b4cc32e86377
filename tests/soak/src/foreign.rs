//! Edits of the keys by others than the module.

use rand::Rng;
use rand::rngs::StdRng;

use crate::ask::Ask;
use crate::cast::{DATABASES, Lock, Owner};
use crate::clock::wall_ms;
use crate::resp::{Command, words};

const REDISSON_ACQUIRE: &str = include_str!("../../differential/lua/acquire.lua");
const REDISSON_UNLOCK: &str = include_str!("../../differential/lua/unlock.lua");

/// What edits need to know.
#[derive(Debug)]
pub struct Trade {
    /// What DUMP said of a held lock.
    pub payload: Vec<u8>,
    /// May keys be carried to other names and databases?
    pub carries: bool,
    /// May keys be carried from one database to another?
    pub between_databases: bool,
}

/// A command with a lock's name behind its first word.
fn on(name: &str, lock: Lock, rest: &str) -> Command {
    let mut command = vec![name.as_bytes().to_vec(), lock.name()];
    command.extend(words(rest));
    command
}

impl Trade {
    /// An edit that a client of this lock's database may send.
    pub fn edit(&self, lock: Lock, rng: &mut StdRng) -> Ask {
        let db = lock.db();
        let other = Lock::new(db, rng.random_range(0..8));
        let beyond = lock.in_db(1 - db);
        let life = [rng.random_range(1..=20), rng.random_range(20..=300)][rng.random_range(0..2)];
        let one = vec![lock];
        let (command, touches) = match rng.random_range(0..100) {
            0..18 => (on("DEL", lock, ""), one),
            18..28 => (on("UNLINK", lock, ""), one),
            28..36 => (on("PEXPIRE", lock, ["0", "-1"][rng.random_range(0..2)]), one),
            36..44 => (on("PEXPIRE", lock, &life.to_string()), one),
            44..52 => {
                let at = wall_ms() + rng.random_range(-5..100);
                (on("PEXPIREAT", lock, &at.to_string()), one)
            }
            52..60 => (on("SET", lock, &format!("x PX {}", rng.random_range(1..=40))), one),
            60..66 if self.carries && other != lock => {
                (on("RENAME", lock, &String::from_utf8_lossy(&other.name())), vec![lock, other])
            }
            66..72 if other != lock => {
                let to = format!("{} REPLACE", String::from_utf8_lossy(&other.name()));
                (on("COPY", lock, &to), vec![other])
            }
            72..80 if self.carries && self.between_databases => {
                (on("MOVE", lock, &beyond.db().to_string()), vec![lock, beyond])
            }
            80..84 if self.between_databases => {
                let to = format!("{} DB {} REPLACE", String::from_utf8_lossy(&lock.name()), beyond.db());
                (on("COPY", lock, &to), vec![beyond])
            }
            84..93 => {
                let mut command = on("RESTORE", lock, &(life + 10).to_string());
                command.extend([self.payload.clone(), b"REPLACE".to_vec()]);
                (command, one)
            }
            93..95 => (words("FLUSHDB"), Lock::all_in(db).collect()),
            95..98 if self.carries => (words("SWAPDB 0 1"), (0..DATABASES).flat_map(Lock::all_in).collect()),
            _ => (on("DEL", lock, ""), one),
        };
        Ask::Foreign { command, touches }
    }
}

/// What Redisson does to take a lock.
pub fn redisson_acquire(lock: Lock, owner: Owner, lease: i64) -> Ask {
    let command = vec![
        b"EVAL".to_vec(),
        REDISSON_ACQUIRE.into(),
        b"1".to_vec(),
        lock.name(),
        lease.to_string().into_bytes(),
        owner.name(),
    ];
    Ask::Foreign { command, touches: vec![lock] }
}

/// What Redisson does to give it back; `number` makes its latch a new one.
pub fn redisson_unlock(lock: Lock, owner: Owner, number: u64) -> Ask {
    let name = String::from_utf8_lossy(&lock.name()).into_owned();
    let command = vec![
        b"EVAL".to_vec(),
        REDISSON_UNLOCK.into(),
        b"3".to_vec(),
        lock.name(),
        format!("redisson_lock__channel:{{{name}}}").into_bytes(),
        format!("redisson_unlock_latch:{{{name}}}:{number}").into_bytes(),
        b"0".to_vec(),
        b"500".to_vec(),
        owner.name(),
        b"PUBLISH".to_vec(),
        b"50".to_vec(),
    ];
    Ask::Foreign { command, touches: vec![lock] }
}

//! The locks as the replication stream tells of them, and what befell them since last asked.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail, ensure};

use crate::cast::{DATABASES, LOCKS, Lock, Owner};
use crate::clock::wall_ms;
use crate::resp::Command;

/// The field of the fencing token.
const TOKEN: &[u8] = b"lock:token";

/// The key whose writes say how far the stream has been read.
pub const FENCE: &str = "soak:fence";

/// A hash that is a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hash {
    /// Who holds it, and how often.
    pub owners: BTreeMap<Owner, i64>,
    /// The fencing token; 0 where there is none.
    pub token: i64,
    /// The end of its lease, by the wall clock; `None`: endless.
    pub end: Option<i64>,
}

/// What is at a lock's key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Value {
    /// Nothing.
    #[default]
    Absent,
    /// A string, with the end of its life.
    Alien(Option<i64>),
    /// A lock.
    Lock(Hash),
}

impl Value {
    /// When it goes by itself.
    pub fn end(&self) -> Option<i64> {
        match self {
            Self::Absent => None,
            Self::Alien(end) => *end,
            Self::Lock(hash) => hash.end,
        }
    }

    /// Is it a lock with this token?
    pub fn has_token(&self, token: i64) -> bool {
        matches!(self, Self::Lock(hash) if hash.token == token)
    }

    /// Who holds it, by the record.
    pub fn holder(&self) -> Option<Owner> {
        match self {
            Self::Lock(hash) => hash.owners.keys().next().copied(),
            _ => None,
        }
    }
}

/// What the stream says that matters for more than the state.
#[derive(Clone, Debug)]
pub enum Happening {
    /// A first hold, by the module.
    Granted {
        /// Where.
        lock: Lock,
        /// To whom.
        owner: Owner,
        /// Its token.
        token: i64,
    },
    /// A script of Redisson's has added a hold to one that there was: whatever is taken back, this stays.
    Deepened {
        /// Where.
        lock: Lock,
        /// Whose.
        owner: Owner,
    },
    /// What was at a key has been carried to another.
    Carried,
    /// What is at a key has been copied to another.
    Copied,
    /// The key of a held lock was deleted.
    Ended {
        /// Where.
        lock: Lock,
        /// What it was.
        hash: Hash,
        /// The time by when it was read of.
        by: i64,
    },
}

/// All locks.
#[derive(Debug)]
pub struct Shadow {
    values: Vec<Value>,
    /// What RESTORE puts at a key.
    template: Hash,
    db: u8,
    last_token: i64,
    /// What the last fence was that went by.
    pub fence: u64,
    /// Every state that each lock was in since this was cleared.
    pub visited: Vec<Vec<Value>>,
    /// What happened since this was cleared, in order.
    pub happened: Vec<Happening>,
}

impl Shadow {
    /// A server without locks.
    pub fn new(template: Hash) -> Self {
        Self {
            values: vec![Value::Absent; LOCKS],
            template,
            db: 0,
            last_token: 0,
            fence: 0,
            visited: vec![vec![Value::Absent]; LOCKS],
            happened: Vec::new(),
        }
    }

    /// What is at a lock's key.
    pub fn value(&self, lock: Lock) -> &Value {
        &self.values[lock.index()]
    }

    /// Is there a lock with this token?
    pub fn has_token(&self, token: i64) -> bool {
        self.values.iter().any(|value| value.has_token(token))
    }

    /// The database that the stream is in.
    pub fn db(&self) -> u8 {
        self.db
    }

    /// Hands out what happened, and begins anew.
    pub fn cut(&mut self) -> (Vec<Vec<Value>>, Vec<Happening>) {
        let now = self.values.iter().map(|value| vec![value.clone()]).collect();
        (std::mem::replace(&mut self.visited, now), std::mem::take(&mut self.happened))
    }

    /// Takes in a change: the lock it concerns, if it is only one.
    ///
    /// # Errors
    /// When it must not happen.
    pub fn apply(&mut self, change: &Command) -> anyhow::Result<Option<Lock>> {
        let [name, args @ ..] = change.as_slice() else { bail!("an empty command") };
        let name = name.to_ascii_uppercase();
        match name.as_slice() {
            b"SELECT" => self.db = number(args, 0)?,
            b"FLUSHDB" => Lock::all_in(self.db).for_each(|lock| self.put(lock, Value::Absent)),
            b"FLUSHALL" => Lock::all().for_each(|lock| self.put(lock, Value::Absent)),
            b"SWAPDB" => self.swap(number(args, 0)?, number(args, 1)?),
            b"SET" if args[0] == FENCE.as_bytes() => self.fence = number(args, 1)?,
            b"MULTI" | b"EXEC" | b"PING" | b"REPLCONF" | b"PUBLISH" => {}
            _ => {
                let lock = Lock::of_name(self.db, &args[0]);
                if let Some(lock) = lock {
                    self.apply_to(lock, &name, args).with_context(|| format!("{lock:?}"))?;
                }
                return Ok(lock);
            }
        }
        Ok(None)
    }

    fn apply_to(&mut self, lock: Lock, name: &[u8], args: &[Vec<u8>]) -> anyhow::Result<()> {
        let value = self.value(lock).clone();
        match name {
            b"DEL" | b"UNLINK" => {
                if let Value::Lock(hash) = value {
                    self.happened.push(Happening::Ended { lock, hash, by: wall_ms() });
                }
                self.put(lock, Value::Absent);
            }
            b"HSET" => self.set_fields(lock, value, &args[1..])?,
            b"HINCRBY" => {
                let owner = Owner::of_name(&args[1]).context("a stranger")?;
                let Value::Lock(mut hash) = absent_is_empty(value) else { bail!("no hash") };
                ensure!(hash.owners.keys().all(|other| *other == owner), "two owners: {hash:?}, {owner:?}");
                if hash.owners.contains_key(&owner) {
                    self.happened.push(Happening::Deepened { lock, owner });
                }
                *hash.owners.entry(owner).or_default() += number::<i64>(args, 2)?;
                self.put(lock, Value::Lock(hash));
            }
            b"PEXPIREAT" => {
                let end = Some(number(args, 1)?);
                self.put(
                    lock,
                    match value {
                        Value::Absent => Value::Absent,
                        Value::Alien(_) => Value::Alien(end),
                        Value::Lock(hash) => Value::Lock(Hash { end, ..hash }),
                    },
                );
            }
            b"SET" => {
                let at = args.iter().position(|word| word.eq_ignore_ascii_case(b"PXAT"));
                let end = at.map(|at| number(args, at + 1)).transpose()?;
                self.put(lock, Value::Alien(end));
            }
            b"RESTORE" => {
                let hash = Hash { end: Some(number(args, 1)?), ..self.template.clone() };
                self.put(lock, Value::Lock(hash));
            }
            b"RENAME" => self.carry(lock, Lock::of_name(self.db, &args[1]), Original::Goes),
            b"MOVE" => self.carry(lock, Some(lock.in_db(number(args, 1)?)), Original::Goes),
            b"COPY" => {
                let at = args.iter().position(|word| word.eq_ignore_ascii_case(b"DB"));
                let db = at.map_or(Ok(self.db), |at| number(args, at + 1))?;
                self.carry(lock, Lock::of_name(db, &args[1]), Original::Stays);
            }
            _ => bail!("not expected in the stream: {}", name.escape_ascii()),
        }
        Ok(())
    }

    /// HSET is what the module writes.
    fn set_fields(&mut self, lock: Lock, value: Value, fields: &[Vec<u8>]) -> anyhow::Result<()> {
        let Value::Lock(mut hash) = absent_is_empty(value) else { bail!("no hash") };
        let mut first = None;
        for pair in fields.chunks_exact(2) {
            let number: i64 = number(pair, 1)?;
            if pair[0] == TOKEN {
                hash.token = number;
            } else {
                let owner = Owner::of_name(&pair[0]).context("a stranger")?;
                ensure!(
                    hash.owners.keys().all(|other| *other == owner),
                    "DOUBLE HOLD: {owner:?} is granted what others hold: {hash:?}"
                );
                if hash.owners.insert(owner, number).is_none() {
                    first = Some(owner);
                }
            }
        }
        if let Some(owner) = first {
            let token = hash.token;
            ensure!(
                token > self.last_token,
                "TOKEN: {token} for {owner:?} does not exceed {}",
                self.last_token
            );
            self.last_token = token;
            self.happened.push(Happening::Granted { lock, owner, token });
        }
        self.put(lock, Value::Lock(hash));
        Ok(())
    }

    fn carry(&mut self, from: Lock, to: Option<Lock>, original: Original) {
        let value = self.value(from).clone();
        self.happened.push(match original {
            Original::Goes => Happening::Carried,
            Original::Stays => Happening::Copied,
        });
        if original == Original::Goes {
            self.put(from, Value::Absent);
        }
        if let Some(to) = to {
            self.put(to, value);
        }
    }

    fn swap(&mut self, one: u8, other: u8) {
        if one == other || one >= DATABASES || other >= DATABASES {
            return;
        }
        for lock in Lock::all_in(one) {
            let there = lock.in_db(other);
            self.happened.push(Happening::Carried);
            let (here, value) = (self.value(lock).clone(), self.value(there).clone());
            self.put(lock, value);
            self.put(there, here);
        }
    }

    fn put(&mut self, lock: Lock, value: Value) {
        self.values[lock.index()] = value.clone();
        self.visited[lock.index()].push(value);
    }
}

/// Does a value stay where it was carried from?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Original {
    Stays,
    Goes,
}

fn absent_is_empty(value: Value) -> Value {
    if value == Value::Absent { Value::Lock(Hash::default()) } else { value }
}

fn number<T: std::str::FromStr>(words: &[Vec<u8>], at: usize) -> anyhow::Result<T> {
    let text = words.get(at).and_then(|word| std::str::from_utf8(word).ok());
    text.and_then(|text| text.parse().ok()).with_context(|| format!("no number in {words:?}"))
}

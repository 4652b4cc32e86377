//! What clients ask of the server.

use std::time::Instant;

use crate::cast::{Lock, Owner};
use crate::resp::{Command, words};

/// The two ways of CLIENT UNBLOCK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As if the time were up.
    Timeout,
    /// With an error.
    Error,
}

/// A request.
#[derive(Clone, Debug)]
pub enum Ask {
    /// LOCK.ACQUIRE
    Acquire { lock: Lock, owner: Owner, ttl: i64, holds: Option<i64>, block: Option<u64> },
    /// LOCK.RELEASE
    Release { lock: Lock, owner: Owner, keep: Option<i64> },
    /// LOCK.RENEW
    Renew { lock: Lock, owner: Owner, ttl: i64 },
    /// LOCK.FORCERELEASE
    Force { lock: Lock },
    /// LOCK.INFO … WAITERS
    Info { lock: Lock },
    /// CLIENT KILL
    Kill { id: u64 },
    /// CLIENT UNBLOCK, of a client by its number here and there, and which request of it waits by now.
    Unblock { client: usize, id: u64, serial: Option<u64>, form: Form },
    /// Anything that edits keys by itself, and which locks that may touch.
    Foreign { command: Command, touches: Vec<Lock> },
    /// Anything else whose reply is of no interest.
    Plain(Command),
    /// MULTI
    Multi,
    /// A command between MULTI and EXEC.
    Queued(Box<Ask>),
    /// EXEC of these.
    Exec(Vec<Ask>),
    /// A script that does these.
    Script(Vec<Ask>),
}

/// A request under way.
#[derive(Clone, Debug)]
pub struct Sent {
    /// No two have the same.
    pub serial: u64,
    /// In which round it was sent.
    pub round: u64,
    /// When, by the wall clock.
    pub wall: i64,
    /// When.
    pub at: Instant,
    /// What.
    pub ask: Ask,
}

/// Does its arguments' commands, split by `|`, and answers with their replies.
const SCRIPT: &str = "local replies, command = {}, {} \
    for _, word in ipairs(ARGV) do \
      if word == '|' then replies[#replies + 1] = redis.pcall(unpack(command)) command = {} \
      else command[#command + 1] = word end \
    end \
    return replies";

impl Ask {
    /// The command that asks it.
    pub fn command(&self) -> Command {
        let text = |text: String| text.into_bytes();
        match self {
            Self::Acquire { lock, owner, ttl, holds, block } => {
                let mut command =
                    vec![b"LOCK.ACQUIRE".to_vec(), lock.name(), owner.name(), text(ttl.to_string())];
                if let Some(holds) = holds {
                    command.extend([b"HOLDS".to_vec(), text(holds.to_string())]);
                }
                if let Some(block) = block {
                    command.extend([b"BLOCK".to_vec(), text(block.to_string())]);
                }
                command
            }
            Self::Release { lock, owner, keep } => {
                let mut command = vec![b"LOCK.RELEASE".to_vec(), lock.name(), owner.name()];
                if let Some(keep) = keep {
                    command.extend([b"HOLDS".to_vec(), text(keep.to_string())]);
                }
                command
            }
            Self::Renew { lock, owner, ttl } => {
                vec![b"LOCK.RENEW".to_vec(), lock.name(), owner.name(), text(ttl.to_string())]
            }
            Self::Force { lock } => vec![b"LOCK.FORCERELEASE".to_vec(), lock.name()],
            Self::Info { lock } => {
                vec![b"LOCK.INFO".to_vec(), lock.name(), b"WAITERS".to_vec(), b"3".to_vec()]
            }
            Self::Kill { id } => words(&format!("CLIENT KILL ID {id}")),
            Self::Unblock { id, form: Form::Timeout, .. } => words(&format!("CLIENT UNBLOCK {id} TIMEOUT")),
            Self::Unblock { id, form: Form::Error, .. } => words(&format!("CLIENT UNBLOCK {id} ERROR")),
            Self::Foreign { command, .. } | Self::Plain(command) => command.clone(),
            Self::Multi => words("MULTI"),
            Self::Queued(ask) => ask.command(),
            Self::Exec(_) => words("EXEC"),
            Self::Script(asks) => {
                let mut command = vec![b"EVAL".to_vec(), SCRIPT.as_bytes().to_vec(), b"0".to_vec()];
                for ask in asks {
                    command.extend(ask.command());
                    command.push(b"|".to_vec());
                }
                command
            }
        }
    }

    /// May it be answered much later?
    pub fn may_wait(&self) -> bool {
        matches!(self, Self::Acquire { block: Some(_), .. })
    }

    /// Each of the requests that it consists of.
    pub fn parts(&self) -> Vec<&Self> {
        match self {
            Self::Exec(asks) | Self::Script(asks) => asks.iter().collect(),
            // EXEC has it.
            Self::Queued(_) => Vec::new(),
            _ => vec![self],
        }
    }

    /// Does it concern this lock?
    pub fn concerns(&self, here: Lock) -> bool {
        self.parts().iter().any(|part| match part {
            Self::Acquire { lock, .. }
            | Self::Release { lock, .. }
            | Self::Renew { lock, .. }
            | Self::Force { lock }
            | Self::Info { lock } => *lock == here,
            Self::Foreign { touches, .. } => touches.contains(&here),
            _ => false,
        })
    }

    /// Does an owner ask for a lock by it, or act on it?
    pub fn is_for(&self, place: (Lock, Owner)) -> bool {
        self.parts().iter().any(|part| match part {
            Self::Acquire { lock, owner, .. }
            | Self::Renew { lock, owner, .. }
            | Self::Release { lock, owner, .. } => (*lock, *owner) == place,
            _ => false,
        })
    }

    /// The locks and the owners in whose names it asks for them.
    pub fn wants(&self) -> Vec<(Lock, Owner)> {
        let wanted = |part: &&Self| match part {
            Self::Acquire { lock, owner, .. } => Some((*lock, *owner)),
            _ => None,
        };
        self.parts().iter().filter_map(wanted).collect()
    }
}

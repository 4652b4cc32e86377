//! The last events, to be told when something went wrong.

use std::collections::VecDeque;
use std::fmt::Write as _;

use crate::ask::Ask;
use crate::cast::Lock;
use crate::fleet::End;
use crate::resp::{Command, Reply};

/// How many events are kept.
const KEPT: usize = 60_000;

/// How many of them are told of one lock.
pub const TOLD: usize = 80;

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A request was made.
    Sent(Ask),
    /// Its reply came.
    Got(Ask, Reply),
    /// A client went, with these requests under way.
    Gone(End, Vec<Ask>),
    /// The server changed something.
    Change(Option<Lock>, Command),
}

#[derive(Debug)]
struct Entry {
    round: u64,
    wall: i64,
    client: Option<usize>,
    event: Event,
}

/// The last events.
#[derive(Debug, Default)]
pub struct Journal {
    entries: VecDeque<Entry>,
}

impl Journal {
    /// Notes an event.
    pub fn note(&mut self, round: u64, wall: i64, client: Option<usize>, event: Event) {
        if self.entries.len() == KEPT {
            self.entries.pop_front();
        }
        self.entries.push_back(Entry { round, wall, client, event });
    }

    /// The last ones that concern a lock, or any.
    pub fn tell(&self, lock: Option<Lock>, most: usize) -> String {
        let concerned: Vec<_> =
            self.entries.iter().filter(|entry| lock.is_none_or(|lock| entry.event.concerns(lock))).collect();
        let mut text = String::new();
        for Entry { round, wall, client, event } in &concerned[concerned.len().saturating_sub(most)..] {
            let who = client.map_or_else(|| "server".to_owned(), |client| format!("client {client}"));
            let _ = writeln!(text, "round {round} {:>6} {who}: {}", wall % 1_000_000, event.describe());
        }
        text
    }
}

impl Event {
    fn concerns(&self, lock: Lock) -> bool {
        match self {
            Self::Sent(Ask::Kill { .. } | Ask::Unblock { .. }) => true,
            Self::Sent(ask) | Self::Got(ask, _) => ask.concerns(lock),
            Self::Gone(_, asks) => asks.iter().any(|ask| ask.concerns(lock)),
            Self::Change(here, command) => {
                *here == Some(lock) || command[0] == b"SWAPDB" || command[0] == b"FLUSHDB"
            }
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Sent(ask) => format!("→ {}", text(&ask.command())),
            Self::Got(ask, reply) => format!("← {reply:?}   to {}", text(&ask.command())),
            Self::Gone(end, asks) => {
                let asks: Vec<_> = asks.iter().map(|ask| text(&ask.command())).collect();
                format!("gone, {end:?}, without a reply to {asks:?}")
            }
            Self::Change(_, command) => format!("⇒ {}", text(command)),
        }
    }
}

fn text(command: &Command) -> String {
    let words: Vec<_> = command.iter().map(|word| word.escape_ascii().to_string()).collect();
    format!("{:.400}", words.join(" "))
}

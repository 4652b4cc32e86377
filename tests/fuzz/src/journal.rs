//! What was sent last, kept to be written down and sent again when something breaks.

use std::collections::VecDeque;
use std::fmt::Write as _;

use anyhow::{Context as _, bail};

use crate::resp::Command;

/// How much is kept.
const ENTRIES: usize = 20_000;

/// The word for an argument without bytes.
const EMPTY: &str = "\"\"";

/// Something sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A command on the connection of this number.
    Command(usize, Command),
    /// Bytes that may be anything, on a connection of their own.
    Bytes(Vec<u8>),
    /// All connections were closed and opened again.
    Reconnect,
}

/// The last things sent.
#[derive(Debug, Default)]
pub struct Journal {
    entries: VecDeque<Entry>,
}

impl Journal {
    /// Notes what is about to be sent.
    pub fn note(&mut self, entry: Entry) {
        if self.entries.len() == ENTRIES {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    /// The journal as text, one entry a line.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for entry in &self.entries {
            match entry {
                Entry::Command(link, command) => {
                    let _ = write!(text, "{link}");
                    for word in command {
                        let _ = write!(text, " {}", escape(word));
                    }
                }
                Entry::Bytes(bytes) => {
                    let _ = write!(text, "bytes {}", escape(bytes));
                }
                Entry::Reconnect => text.push_str("reconnect"),
            }
            text.push('\n');
        }
        text
    }

    /// Reads back what [`to_text`](Self::to_text) wrote.
    ///
    /// # Errors
    /// When a line is no entry.
    pub fn parse(text: &str) -> anyhow::Result<Vec<Entry>> {
        text.lines().map(|line| parse_entry(line).with_context(|| format!("no entry: {line:.80}"))).collect()
    }
}

fn parse_entry(line: &str) -> anyhow::Result<Entry> {
    let mut words = line.split(' ');
    let link = words.next().context("an empty line")?;
    let words = words.map(unescape).collect::<anyhow::Result<Command>>()?;
    Ok(match link {
        "reconnect" => Entry::Reconnect,
        "bytes" => Entry::Bytes(words.concat()),
        link => Entry::Command(link.parse()?, words),
    })
}

fn escape(word: &[u8]) -> String {
    if word.is_empty() { EMPTY.to_owned() } else { word.escape_ascii().to_string().replace(' ', "\\x20") }
}

fn unescape(word: &str) -> anyhow::Result<Vec<u8>> {
    if word == EMPTY {
        return Ok(Vec::new());
    }
    let mut bytes = Vec::new();
    let mut rest = word.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match (byte, if byte == b'\\' { rest.next() } else { None }) {
            (b'\\', Some(b't')) => b'\t',
            (b'\\', Some(b'r')) => b'\r',
            (b'\\', Some(b'n')) => b'\n',
            (b'\\', Some(b'x')) => hex(rest.next())? << 4 | hex(rest.next())?,
            (b'\\', Some(itself @ (b'\\' | b'"' | b'\''))) => itself,
            (b'\\', _) => bail!("an unknown escape"),
            (plain, _) => plain,
        });
    }
    Ok(bytes)
}

fn hex(digit: Option<u8>) -> anyhow::Result<u8> {
    let value = digit.and_then(|digit| char::from(digit).to_digit(16)).context("no hexadecimal digit")?;
    Ok(u8::try_from(value)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_read_back_as_it_was_written() {
        let all_bytes: Vec<u8> = (0..=255).collect();
        let entries = [
            Entry::Command(3, vec![b"LOCK.INFO".to_vec(), all_bytes.clone(), Vec::new()]),
            Entry::Reconnect,
            Entry::Bytes(all_bytes),
            Entry::Bytes(Vec::new()),
        ];
        let mut journal = Journal::default();
        entries.iter().cloned().for_each(|entry| journal.note(entry));
        assert_eq!(Journal::parse(&journal.to_text()).ok().as_deref(), Some(&entries[..]));
    }

    #[test]
    fn the_oldest_goes_first() {
        let mut journal = Journal::default();
        for n in 0..=ENTRIES {
            journal.note(Entry::Command(n, Vec::new()));
        }
        let text = journal.to_text();
        assert!(text.starts_with("1\n") && text.ends_with(&format!("{ENTRIES}\n")));
    }
}

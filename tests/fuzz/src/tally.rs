//! What was done, counted.

use std::collections::BTreeMap;
use std::fmt;

use crate::resp::Reply;

/// Counts of commands, of the kinds of their replies, and of errors by their codes.
#[derive(Debug, Default)]
pub struct Tally {
    /// Lines of the grammar, observed commands and outbursts of noise.
    pub steps: u64,
    /// Commands that got a reply.
    pub commands: u64,
    /// How often the module was unloaded and loaded again.
    pub swaps: u64,
    kinds: BTreeMap<&'static str, u64>,
    judged: BTreeMap<&'static str, u64>,
    errors: BTreeMap<String, u64>,
}

impl Tally {
    /// Counts a command that was held against the contract.
    pub fn judge(&mut self, kind: &'static str) {
        *self.judged.entry(kind).or_default() += 1;
    }

    /// Counts a reply.
    pub fn count(&mut self, reply: &Reply) {
        self.commands += 1;
        let kind = match reply {
            Reply::Nil => "null",
            Reply::Int(_) => "integer",
            Reply::Text(_) => "string",
            Reply::Error(_) => "error",
            Reply::Array(_) => "array",
            Reply::Map(_) => "map",
            Reply::Push(_) => "push",
        };
        *self.kinds.entry(kind).or_default() += 1;
        if let Some(code) = reply.code() {
            *self.errors.entry(code.escape_ascii().to_string()).or_default() += 1;
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { steps, commands, swaps, .. } = self;
        write!(f, "steps {steps}, commands {commands}, module swaps {swaps}; replies: ")?;
        list(f, &self.kinds)?;
        write!(f, "; errors: ")?;
        list(f, &self.errors)?;
        write!(f, "; judged: ")?;
        list(f, &self.judged)
    }
}

fn list<K: fmt::Display>(f: &mut fmt::Formatter<'_>, counts: &BTreeMap<K, u64>) -> fmt::Result {
    if counts.is_empty() {
        return write!(f, "none");
    }
    for (n, (name, count)) in counts.iter().enumerate() {
        let comma = if n == 0 { "" } else { ", " };
        write!(f, "{comma}{name} {count}")?;
    }
    Ok(())
}

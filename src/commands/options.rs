//! Parsing what several commands have in common.

use crate::lock::{MAX_HOLDS, MAX_TIMEOUT, MAX_TOKEN, TokenCounter, check_owner};
use crate::node;
use crate::refusal::Refusal;
use crate::server::ServerStr;

/// An owner: any bytes but none and the reserved ones.
pub fn owner(arg: ServerStr<'_>) -> Result<ServerStr<'_>, Refusal> {
    check_owner(arg.bytes()).map_err(Refusal::Owner)?;
    Ok(arg)
}

/// A lease in milliseconds, from 1 to `max-ttl`, and no longer than the grace covers.
pub fn ttl(arg: ServerStr<'_>) -> Result<u64, Refusal> {
    let max = node::with(|node| node.longest_lease());
    integer(arg, 1, max).ok_or(Refusal::Ttl { max })
}

/// The options behind the positional arguments: a name and a value each, in any order and case, none twice.
#[derive(Clone, Copy, Default)]
pub struct Options<'a> {
    holds: Option<ServerStr<'a>>,
    token: Option<ServerStr<'a>>,
    block: Option<ServerStr<'a>>,
    waiters: Option<ServerStr<'a>>,
}

/// An option that a command may take.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// `HOLDS n`
    Holds,
    /// `TOKEN t`
    Token,
    /// `BLOCK timeout`
    Block,
    /// `WAITERS count`
    Waiters,
}

impl<'a> Options<'a> {
    /// Sorts the options out, of which the command takes those in `allowed`.
    pub fn parse(args: &[ServerStr<'a>], allowed: &[Known]) -> Result<Self, Refusal> {
        let mut options = Self::default();
        let pairs = args.chunks_exact(2);
        if !pairs.remainder().is_empty() {
            return Err(Refusal::Syntax);
        }
        for pair in pairs {
            let name = pair[0].bytes();
            let (known, place) = if name.eq_ignore_ascii_case(b"HOLDS") {
                (Known::Holds, &mut options.holds)
            } else if name.eq_ignore_ascii_case(b"TOKEN") {
                (Known::Token, &mut options.token)
            } else if name.eq_ignore_ascii_case(b"BLOCK") {
                (Known::Block, &mut options.block)
            } else if name.eq_ignore_ascii_case(b"WAITERS") {
                (Known::Waiters, &mut options.waiters)
            } else {
                return Err(Refusal::Syntax);
            };
            if !allowed.contains(&known) || place.replace(pair[1]).is_some() {
                return Err(Refusal::Syntax);
            }
        }
        Ok(options)
    }

    /// `HOLDS n`, at least `min`.
    pub fn holds(&self, min: u64) -> Result<Option<u64>, Refusal> {
        self.holds.map(|arg| integer(arg, min, MAX_HOLDS).ok_or(Refusal::Holds { min })).transpose()
    }

    /// `BLOCK timeout`, in milliseconds.
    pub fn block(&self) -> Result<Option<u64>, Refusal> {
        self.block.map(|arg| integer(arg, 0, MAX_TIMEOUT).ok_or(Refusal::Timeout)).transpose()
    }

    /// `WAITERS count`
    pub fn waiters(&self) -> Result<Option<u64>, Refusal> {
        self.waiters.map(|arg| integer(arg, 0, MAX_TIMEOUT).ok_or(Refusal::Waiters)).transpose()
    }

    /// `TOKEN t`, at most a day ahead of the node's clock; 0 where it is absent.
    pub fn token(&self) -> Result<u64, Refusal> {
        let Some(arg) = self.token else { return Ok(0) };
        let token = integer(arg, 1, MAX_TOKEN).ok_or(Refusal::Token)?;
        if TokenCounter::accepts(token, node::with(|node| node.token_clock_us())) {
            Ok(token)
        } else {
            Err(Refusal::TokenTooFarAhead)
        }
    }
}

fn integer(arg: ServerStr<'_>, min: u64, max: u64) -> Option<u64> {
    let value = u64::try_from(arg.integer()?).ok()?;
    (min..=max).contains(&value).then_some(value)
}

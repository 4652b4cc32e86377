//! What a command asks for, if its arguments are in order.

use super::key::{MODE, TOKEN};
use crate::resp::Command;
use crate::values::now_us;

/// The largest hold count and the largest token.
pub const MAX: u64 = (1 << 53) - 1;

/// A well-formed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// LOCK.ACQUIRE
    Acquire { ttl: u64, holds: Option<u64>, token: u64 },
    /// LOCK.RENEW
    Renew { ttl: u64, token: u64 },
    /// LOCK.RELEASE
    Release { keep: Option<u64> },
    /// LOCK.INFO
    Info,
    /// LOCK.FORCERELEASE
    Force,
}

/// What the arguments are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// In order.
    Request(Request),
    /// To be refused.
    Bad,
    /// Right or wrong by a hair, or of a command that is not ours to judge.
    Unclear,
}

/// Reads a command under a `max-ttl`.
pub fn parse(command: &Command, max_ttl: u64) -> Parsed {
    let Some((name, args)) = command.split_first() else { return Parsed::Unclear };
    let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
    let ttl = |word| integer(word, 1, max_ttl);
    match (name.to_ascii_uppercase().as_slice(), args.as_slice()) {
        (b"LOCK.ACQUIRE" | b"LOCK.INFO", [_, rest @ ..])
            if rest.iter().any(|word| concerns_the_line(word)) =>
        {
            Parsed::Unclear
        }
        (b"LOCK.ACQUIRE", [_, owner, lease, options @ ..]) => finish(owner, options, |options| {
            Some(Request::Acquire {
                ttl: ttl(lease)?,
                holds: options.holds.map(|word| integer(word, 1, MAX)).map_or(Some(None), |n| n.map(Some))?,
                token: options.token.map_or(Some(0), |word| integer(word, 1, MAX))?,
            })
        }),
        (b"LOCK.RENEW", [_, owner, lease, options @ ..]) => finish(owner, options, |options| {
            let token = options.token.map_or(Some(0), |word| integer(word, 1, MAX))?;
            options.holds.is_none().then_some(Request::Renew { ttl: ttl(lease)?, token })
        }),
        (b"LOCK.RELEASE", [_, owner, options @ ..]) => finish(owner, options, |options| {
            let keep = match options.holds {
                Some(word) => Some(integer(word, 0, MAX)?),
                None => None,
            };
            options.token.is_none().then_some(Request::Release { keep })
        }),
        (b"LOCK.INFO", [_]) => Parsed::Request(Request::Info),
        (b"LOCK.FORCERELEASE", [_]) => Parsed::Request(Request::Force),
        (name, _) if name.starts_with(b"LOCK.") => Parsed::Bad,
        _ => Parsed::Unclear,
    }
}

#[derive(Debug, Default)]
struct Options<'a> {
    holds: Option<&'a [u8]>,
    token: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    /// `None` where an option is unknown, repeated or without a value.
    fn parse(words: &[&'a [u8]]) -> Option<Self> {
        let mut options = Self::default();
        for pair in words.chunks(2) {
            let [name, value] = pair else { return None };
            let slot = match name.to_ascii_uppercase().as_slice() {
                b"HOLDS" => &mut options.holds,
                b"TOKEN" => &mut options.token,
                _ => return None,
            };
            if slot.replace(value).is_some() {
                return None;
            }
        }
        Some(options)
    }
}

fn finish<'a>(
    owner: &[u8],
    options: &[&'a [u8]],
    request: impl FnOnce(Options<'a>) -> Option<Request>,
) -> Parsed {
    if owner.is_empty() || matches!(owner, TOKEN | MODE) {
        return Parsed::Bad;
    }
    match Options::parse(options).and_then(request) {
        Some(Request::Acquire { token, .. } | Request::Renew { token, .. }) if is_near_the_limit(token) => {
            Parsed::Unclear
        }
        Some(Request::Acquire { token, .. } | Request::Renew { token, .. }) if is_too_far(token) => {
            Parsed::Bad
        }
        Some(request) => Parsed::Request(request),
        None => Parsed::Bad,
    }
}

/// A token may be a day ahead of the clock; this is some minutes on both sides of that.
fn is_near_the_limit(token: u64) -> bool {
    token.abs_diff(now_us() + DAY) < 600_000_000
}

fn is_too_far(token: u64) -> bool {
    token > now_us() + DAY
}

/// A day in microseconds.
const DAY: u64 = 86_400_000_000;

/// The options of the waiting line, whose meaning takes more than one client to judge.
fn concerns_the_line(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"BLOCK") || word.eq_ignore_ascii_case(b"WAITERS")
}

/// An integer as servers spell it: no sign, no space, no leading zero.
pub fn integer(word: &[u8], least: u64, most: u64) -> Option<u64> {
    let number: u64 = std::str::from_utf8(word).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == word && (least..=most).contains(&number)).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::words;

    fn parsed(text: &str) -> Parsed {
        parse(&words(text), 1_000)
    }

    #[test]
    fn good_requests_are_understood() {
        let acquire = Request::Acquire { ttl: 1_000, holds: Some(2), token: 9 };
        assert_eq!(parsed("LOCK.ACQUIRE k o 1000 token 9 Holds 2"), Parsed::Request(acquire));
        assert_eq!(parsed("lock.renew k o 1"), Parsed::Request(Request::Renew { ttl: 1, token: 0 }));
        assert_eq!(parsed("LOCK.RELEASE k o HOLDS 0"), Parsed::Request(Request::Release { keep: Some(0) }));
    }

    #[test]
    fn bad_requests_are_not() {
        for text in [
            "LOCK.ACQUIRE k o",
            "LOCK.ACQUIRE k o 1001",
            "LOCK.ACQUIRE k o +1",
            "LOCK.ACQUIRE k mode 1",
            "LOCK.ACQUIRE k o 1 HOLDS 0",
            "LOCK.ACQUIRE k o 1 HOLDS",
            "LOCK.ACQUIRE k o 1 HOLDS 1 HOLDS 1",
            "LOCK.RENEW k o 1 HOLDS 1",
            "LOCK.RENEW k o 1 TOKEN 9007199254740991",
            "LOCK.RELEASE k o HOLDS 9007199254740992",
            "LOCK.INFO",
            "LOCK.INFO k k",
        ] {
            assert_eq!(parsed(text), Parsed::Bad, "{text}");
        }
    }
}

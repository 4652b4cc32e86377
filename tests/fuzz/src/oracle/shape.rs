//! The form of each reply, whatever the state.

use anyhow::{bail, ensure};

use super::request::MAX;
use crate::resp::{Command, Reply};

/// The fields of LOCK.INFO, in order; with WAITERS there is `line` too.
pub const INFO_FIELDS: [&str; 7] = ["state", "owner", "holds", "ttl", "token", "waiters", "grace"];

/// The codes of errors that a command of the module may answer.
const CODES: [&[u8]; 15] = [
    b"ERR",
    b"WRONGTYPE",
    b"BADOWNER",
    b"BADTOKEN",
    b"PAUSED",
    b"READONLY",
    b"OOM",
    b"MISCONF",
    b"LOADING",
    b"MASTERDOWN",
    b"NOREPLICAS",
    b"EXECABORT",
    b"BUSY",
    b"LINEFULL",
    b"UNBLOCKED",
];

/// Checks the reply to a command, if it is one of the module's.
///
/// # Errors
/// When the reply has the wrong form.
pub fn check_shape(command: &Command, reply: &Reply) -> anyhow::Result<()> {
    let Some(name) = command.first().filter(|name| is_ours(name)) else { return Ok(()) };
    if let Some(code) = reply.code() {
        ensure!(CODES.contains(&code), "an unknown error code");
        return Ok(());
    }
    match (name.to_ascii_uppercase().as_slice(), reply) {
        (b"LOCK.ACQUIRE", Reply::Array(items)) => check_hold(items),
        (b"LOCK.RENEW" | b"LOCK.FORCERELEASE", Reply::Int(0 | 1)) | (b"LOCK.RELEASE", Reply::Nil) => Ok(()),
        (b"LOCK.RELEASE", Reply::Int(left)) if is_53_bits(*left) => Ok(()),
        (b"LOCK.INFO", Reply::Array(words) | Reply::Map(words)) => check_info(words),
        _ => bail!("a reply of the wrong kind"),
    }
}

fn check_hold(items: &[Reply]) -> anyhow::Result<()> {
    let [Reply::Int(holds), Reply::Int(ttl), Reply::Int(token)] = *items else {
        bail!("an ACQUIRE answers three integers");
    };
    ensure!(is_53_bits(holds) && is_53_bits(token), "a number of more than 53 bits, or below 0");
    ensure!(ttl == -1 || ttl > 0 || (holds, ttl, token) == (0, 0, 0), "a lease that is over");
    Ok(())
}

fn check_info(words: &[Reply]) -> anyhow::Result<()> {
    let (words, line) = words.split_at(words.len().min(2 * INFO_FIELDS.len()));
    let names = words.iter().step_by(2);
    ensure!(line.is_empty() || is_line(line), "the line is none");
    ensure!(
        words.len() == 2 * INFO_FIELDS.len()
            && names.zip(INFO_FIELDS).all(|(name, expected)| name.is_text(expected.as_bytes())),
        "the fields are others"
    );
    let values: Vec<&Reply> = words.iter().skip(1).step_by(2).collect();
    let [
        state,
        owner,
        Reply::Int(holds),
        Reply::Int(ttl),
        Reply::Int(token),
        Reply::Int(0..),
        Reply::Int(0..),
    ] = values[..]
    else {
        bail!("a field of the wrong kind");
    };
    ensure!(is_53_bits(*holds) && is_53_bits(*token), "a number of more than 53 bits, or below 0");
    if state.is_text(b"free") {
        ensure!((owner, *holds, *ttl) == (&Reply::Nil, 0, -2), "a free lock with a holder");
    } else {
        ensure!(state.is_text(b"held"), "an unknown state");
        ensure!(*ttl == -1 || *ttl > 0, "held, with a lease that is over");
    }
    Ok(())
}

/// The word `line` and, of each in line, the owner and for how long it has waited.
fn is_line(words: &[Reply]) -> bool {
    let [name, Reply::Array(line)] = words else { return false };
    let is_waiter = |waiter: &Reply| matches!(waiter, Reply::Array(pair) if matches!(pair[..], [Reply::Text(_), Reply::Int(0..)]));
    name.is_text(b"line") && line.iter().all(is_waiter)
}

fn is_53_bits(number: i64) -> bool {
    u64::try_from(number).is_ok_and(|number| number <= MAX)
}

fn is_ours(name: &[u8]) -> bool {
    name.get(..5).is_some_and(|prefix| prefix.eq_ignore_ascii_case(b"LOCK."))
}

/// The token of a grant that must have been a first hold.
pub fn first_hold(command: &Command, reply: &Reply) -> Option<i64> {
    let is_plain = command.len() >= 4
        && command[0].eq_ignore_ascii_case(b"LOCK.ACQUIRE")
        && !command[4..].iter().any(|word| word.eq_ignore_ascii_case(b"HOLDS"));
    match reply {
        Reply::Array(items) if is_plain => match items[..] {
            [Reply::Int(1), _, Reply::Int(token)] => Some(token),
            _ => None,
        },
        _ => None,
    }
}

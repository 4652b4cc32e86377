//! A command on a key, judged.

use std::collections::BTreeMap;

use anyhow::{bail, ensure};

use super::key::{Content, Key, MODE, Standing, TOKEN};
use super::request::{MAX, Parsed, Request, parse};
use crate::resp::{Command, Reply};

/// Two looks at one lease may be this far apart, in milliseconds.
const TOLERANCE: i64 = 250;

/// Leases shorter than this may end between two looks.
const TOO_SHORT: i64 = 300;

/// What happened.
#[derive(Debug)]
pub struct Case<'a> {
    /// The command.
    pub command: &'a Command,
    /// Its reply.
    pub reply: &'a Reply,
    /// The key before it.
    pub before: &'a Key,
    /// The key after it.
    pub after: &'a Key,
    /// The longest lease allowed.
    pub max_ttl: u64,
    /// A token that this node has given before.
    pub last_token: i64,
}

/// Says whether a command has done what it should. Answers what kind of case it was.
///
/// # Errors
/// When it hasn't; the error says what is wrong.
pub fn judge(case: &Case<'_>) -> anyhow::Result<&'static str> {
    if (0..TOO_SHORT).contains(&case.before.ttl) {
        return Ok("lease too short");
    }
    if case.reply.code().is_some() {
        ensure!(is_same(case.before, case.after), "a refused command has changed the key");
    }
    let request = match parse(case.command, case.max_ttl) {
        Parsed::Request(request) => request,
        Parsed::Bad if case.reply.code().is_none() => bail!("it should have been refused"),
        Parsed::Bad => return Ok("bad arguments"),
        Parsed::Unclear => return Ok("unclear"),
    };
    let owner = case.command.get(2).map_or(&b""[..], Vec::as_slice);
    let is_owners = !matches!(request, Request::Info | Request::Force);
    let standing = case.before.standing(is_owners.then_some(owner));
    match (case.reply.code(), standing) {
        (_, Standing::Unclear) => return Ok("unclear"),
        (Some(b"WRONGTYPE"), Standing::NoLock) => return Ok("no lock"),
        (Some(b"WRONGTYPE"), _) if may_be_broken(request, case.before) => return Ok("no lock"),
        (None, Standing::NoLock) => bail!("it should have been refused: this is no lock"),
        (Some(b"WRONGTYPE" | b"BADOWNER" | b"BADTOKEN"), _) => bail!("it should not have been refused"),
        (Some(b"ERR"), Standing::Mine { holds: MAX, .. }) => return Ok("no holds left"),
        (Some(b"ERR"), _) => bail!("nothing is wrong with its arguments"),
        // Out of memory, a replica, and the like.
        (Some(_), _) => return Ok("refused by the server"),
        (None, _) => {}
    }
    match request {
        Request::Acquire { ttl, holds, token } => case.acquired(standing, owner, ttl, holds, token),
        Request::Renew { ttl, token } => case.renewed(standing, owner, ttl, token),
        Request::Release { keep } => case.released(standing, owner, keep),
        Request::Info => case.informed(),
        Request::Force => case.forced(standing),
    }?;
    Ok(match standing {
        Standing::Free => "free",
        Standing::Mine { .. } => "own",
        _ => "held by others",
    })
}

/// Whether a count that is none makes the lock a broken one for those who don't hold it.
fn may_be_broken(request: Request, key: &Key) -> bool {
    matches!(request, Request::Info | Request::Force)
        && key.owners().any(|(_, count)| super::request::integer(count, 1, MAX).is_none())
}

impl Case<'_> {
    fn acquired(
        &self,
        standing: Standing,
        owner: &[u8],
        ttl: u64,
        holds: Option<u64>,
        floor: u64,
    ) -> anyhow::Result<()> {
        let Reply::Array(items) = self.reply else { bail!("not an array") };
        let [Reply::Int(got), Reply::Int(left), Reply::Int(token)] = items[..] else {
            bail!("not three integers")
        };
        match standing {
            Standing::Free => {
                ensure!(got == signed(holds.unwrap_or(1)), "a first hold of the wrong count");
                ensure!(token > self.last_token && token >= signed(floor), "a token that is too low");
                ensure!(is_near(left, signed(ttl)), "not the lease that was asked for");
                self.left_behind(&[(owner, signed(holds.unwrap_or(1))), (TOKEN, token)], signed(ttl))
            }
            Standing::Mine { holds: had, token: kept } => {
                let count = signed(holds.map_or(had + 1, |wanted| wanted.max(had)));
                ensure!(got == count, "a re-entry to the wrong count");
                ensure!(
                    kept.is_none_or(|kept| token == signed(kept.max(floor))),
                    "a re-entry with another token"
                );
                let lease = longer(self.before.ttl, ttl);
                ensure!(is_near(left, lease), "not the longer of two leases");
                self.changed(owner, count, (floor > kept.unwrap_or(MAX)).then_some(token), lease)
            }
            Standing::Other { token: theirs } => {
                ensure!(got == 0, "two hold the lock");
                ensure!(theirs.is_none_or(|theirs| token == signed(theirs)), "not the holder's token");
                ensure!(is_near(left, self.before.ttl), "not the holder's lease");
                self.unchanged()
            }
            Standing::NoLock | Standing::Unclear => Ok(()),
        }
    }

    fn renewed(&self, standing: Standing, owner: &[u8], ttl: u64, floor: u64) -> anyhow::Result<()> {
        let Standing::Mine { holds, token } = standing else {
            ensure!(*self.reply == Reply::Int(0), "renewed for a stranger");
            return self.unchanged();
        };
        ensure!(*self.reply == Reply::Int(1), "not renewed for its holder");
        let raised = (floor > token.unwrap_or(MAX)).then_some(signed(floor));
        self.changed(owner, signed(holds), raised, longer(self.before.ttl, ttl))
    }

    fn released(&self, standing: Standing, owner: &[u8], keep: Option<u64>) -> anyhow::Result<()> {
        let Standing::Mine { holds, .. } = standing else {
            ensure!(*self.reply == Reply::Nil, "released for a stranger");
            return self.unchanged();
        };
        let left = signed(keep.unwrap_or(holds - 1).min(holds));
        ensure!(*self.reply == Reply::Int(left), "not the holds that are left");
        if left == 0 { self.gone() } else { self.changed(owner, left, None, self.before.ttl) }
    }

    fn forced(&self, standing: Standing) -> anyhow::Result<()> {
        if standing == Standing::Free {
            ensure!(*self.reply == Reply::Int(0), "freed a free lock");
            return Ok(());
        }
        ensure!(*self.reply == Reply::Int(1), "not freed");
        self.gone()
    }

    fn informed(&self) -> anyhow::Result<()> {
        let (Reply::Array(words) | Reply::Map(words)) = self.reply else { bail!("not a map") };
        let [_, state, _, owner, _, holds, _, ttl, _, token, ..] = words.as_slice() else {
            bail!("too few fields")
        };
        let has_mode = self.before.field(MODE).is_some();
        let owners: Vec<_> = self.before.owners().collect();
        if owners.is_empty() && !has_mode {
            ensure!(state.is_text(b"free"), "held by nobody");
            return self.unchanged();
        }
        ensure!(state.is_text(b"held"), "free, though it is held");
        ensure!(matches!(ttl, Reply::Int(ttl) if is_near(*ttl, self.before.ttl)), "not the lease");
        ensure!(self.before.token().is_none_or(|kept| *token == Reply::Int(signed(kept))), "not the token");
        if let ([(only, count)], false) = (&owners[..], has_mode) {
            ensure!(owner.is_text(only), "not the owner");
            ensure!(*holds == Reply::Int(count_of(count)), "not the hold count");
        }
        self.unchanged()
    }

    fn unchanged(&self) -> anyhow::Result<()> {
        ensure!(is_same(self.before, self.after), "the key has changed");
        Ok(())
    }

    fn gone(&self) -> anyhow::Result<()> {
        ensure!(self.after.content == Content::Absent, "the key is still there");
        Ok(())
    }

    /// The key must hold just these fields.
    fn left_behind(&self, fields: &[(&[u8], i64)], ttl: i64) -> anyhow::Result<()> {
        let fields =
            fields.iter().map(|(name, value)| (name.to_vec(), value.to_string().into_bytes())).collect();
        self.ends_as(&fields, ttl)
    }

    /// The key must be as before, but for a count, a token that was raised, and the lease.
    fn changed(&self, owner: &[u8], count: i64, token: Option<i64>, ttl: i64) -> anyhow::Result<()> {
        let mut fields = self.before.fields().cloned().unwrap_or_default();
        fields.insert(owner.to_vec(), count.to_string().into_bytes());
        if let Some(token) = token {
            fields.insert(TOKEN.to_vec(), token.to_string().into_bytes());
        }
        // What to make of a token field that is none, the contract leaves open.
        if self.before.token().is_none() {
            ensure!(self.after.field(owner) == fields.get(owner).map(Vec::as_slice), "a wrong count");
            return Ok(());
        }
        self.ends_as(&fields, ttl)
    }

    fn ends_as(&self, fields: &BTreeMap<Vec<u8>, Vec<u8>>, ttl: i64) -> anyhow::Result<()> {
        if (0..TOO_SHORT).contains(&ttl) {
            return Ok(());
        }
        ensure!(self.after.fields() == Some(fields), "the key's fields should be others");
        ensure!(is_near(self.after.ttl, ttl), "the key's TTL should be {ttl}");
        Ok(())
    }
}

fn is_same(before: &Key, after: &Key) -> bool {
    before.content == after.content && is_near(before.ttl, after.ttl)
}

/// The longer of a lease and what a key has left; without a TTL it has no end.
fn longer(left: i64, ttl: u64) -> i64 {
    if left < 0 { left } else { left.max(signed(ttl)) }
}

fn is_near(one: i64, other: i64) -> bool {
    (one < 0) == (other < 0) && one.abs_diff(other) <= TOLERANCE.unsigned_abs()
}

fn count_of(count: &[u8]) -> i64 {
    super::request::integer(count, 1, MAX).map_or(0, signed)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

//! What a key says about a lock.

use std::collections::BTreeMap;
use std::fmt;

use super::request::{MAX, integer};
use crate::resp::Reply;

/// The field of the fencing token.
pub const TOKEN: &[u8] = b"lock:token";

/// The marker of Redisson's read-write locks.
pub const MODE: &[u8] = b"mode";

/// A key, as TYPE, PTTL and HGETALL show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    /// Milliseconds of lease: -1 without a TTL, -2 without a key.
    pub ttl: i64,
    /// The fields of a hash.
    pub content: Content,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.content {
            Content::Absent => write!(f, "no key"),
            Content::Other => write!(f, "no hash, ttl {}", self.ttl),
            Content::Hash(fields) => {
                for (name, value) in fields {
                    write!(
                        f,
                        "{:.200} = {:.200}, ",
                        name.escape_ascii().to_string(),
                        value.escape_ascii().to_string()
                    )?;
                }
                write!(f, "ttl {}", self.ttl)
            }
        }
    }
}

/// What is in a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// No key.
    Absent,
    /// A hash.
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    /// A type that can be no lock.
    Other,
}

/// How a lock stands towards one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nobody holds it.
    Free,
    /// That owner holds it.
    Mine {
        /// How often.
        holds: u64,
        /// With this token; `None` where the field is none that the module would write.
        token: Option<u64>,
    },
    /// Another holds it, with this token.
    Other {
        /// As above.
        token: Option<u64>,
    },
    /// It is no lock, or a broken one.
    NoLock,
    /// The contract is silent.
    Unclear,
}

impl Key {
    /// Reads the replies to TYPE, PTTL and HGETALL; `None` where they are none.
    pub fn from_replies(replies: &[Reply]) -> Option<Self> {
        let [Reply::Text(kind), Reply::Int(ttl), fields] = replies else { return None };
        let content = match (kind.as_slice(), fields) {
            (b"none", _) => Content::Absent,
            (b"hash", Reply::Array(words) | Reply::Map(words)) => Content::Hash(pairs(words)?),
            _ => Content::Other,
        };
        Some(Self { ttl: *ttl, content })
    }

    /// A field of the hash.
    pub fn field(&self, name: &[u8]) -> Option<&[u8]> {
        self.fields().and_then(|fields| fields.get(name)).map(Vec::as_slice)
    }

    /// The fields, where it is a hash.
    pub fn fields(&self) -> Option<&BTreeMap<Vec<u8>, Vec<u8>>> {
        match &self.content {
            Content::Hash(fields) => Some(fields),
            Content::Absent | Content::Other => None,
        }
    }

    /// The owners in the hash.
    pub fn owners(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let fields = self.fields().into_iter().flatten();
        fields.map(|(name, value)| (&**name, &**value)).filter(|(name, _)| !matches!(*name, TOKEN | MODE))
    }

    /// The token: 0 without the field, `None` where the field holds something else.
    pub fn token(&self) -> Option<u64> {
        self.field(TOKEN).map_or(Some(0), |value| integer(value, 1, MAX))
    }

    /// How the lock stands towards an owner, or towards a caller who is none.
    pub fn standing(&self, owner: Option<&[u8]>) -> Standing {
        let Some(fields) = self.fields() else {
            return if self.content == Content::Absent { Standing::Free } else { Standing::NoLock };
        };
        let owners = self.owners().count();
        let is_lock = fields.contains_key(TOKEN)
            || fields.contains_key(MODE)
            || self.owners().all(|(name, _)| is_redisson(name));
        let token = self.token();
        match owner.and_then(|owner| self.field(owner)) {
            _ if !is_lock => Standing::NoLock,
            _ if fields.contains_key(MODE) => Standing::Other { token },
            _ if owners == 0 => Standing::Free,
            None => Standing::Other { token },
            Some(_) if owners > 1 => Standing::Unclear,
            Some(count) => match integer(count, 1, MAX) {
                Some(holds) => Standing::Mine { holds, token },
                None => Standing::NoLock,
            },
        }
    }
}

/// Is it `<uuid>:<digits>`?
fn is_redisson(name: &[u8]) -> bool {
    let Some((uuid, [b':', thread @ ..])) = name.split_at_checked(36) else { return false };
    let is_dash = |at| matches!(at, 8 | 13 | 18 | 23);
    let is_uuid = uuid.iter().enumerate().all(|(at, byte)| match byte {
        b'-' => is_dash(at),
        other => !is_dash(at) && other.is_ascii_hexdigit(),
    });
    is_uuid && !thread.is_empty() && thread.iter().all(u8::is_ascii_digit)
}

fn pairs(words: &[Reply]) -> Option<BTreeMap<Vec<u8>, Vec<u8>>> {
    words
        .chunks_exact(2)
        .map(|pair| match pair {
            [Reply::Text(name), Reply::Text(value)] => Some((name.clone(), value.clone())),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "8743c9c0-0795-4907-87fd-6c719a6b4586:1";

    fn standing(owner: &str, fields: &[(&str, &str)]) -> Standing {
        let fields = fields.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        Key { ttl: 1, content: Content::Hash(fields.collect()) }.standing(Some(owner.as_bytes()))
    }

    #[test]
    fn locks_are_told_from_data() {
        assert_eq!(
            standing("me", &[("me", "2"), ("lock:token", "7")]),
            Standing::Mine { holds: 2, token: Some(7) }
        );
        assert_eq!(standing("you", &[("me", "x"), ("lock:token", "x")]), Standing::Other { token: None });
        assert_eq!(standing("me", &[("me", "x"), ("lock:token", "7")]), Standing::NoLock);
        assert_eq!(standing("me", &[("lock:token", "7")]), Standing::Free);
        assert_eq!(standing(A, &[(A, "1")]), Standing::Mine { holds: 1, token: Some(0) });
        assert_eq!(standing(A, &[(A, "1"), ("mode", "read")]), Standing::Other { token: Some(0) });
        assert_eq!(standing("me", &[("me", "1")]), Standing::NoLock);
    }
}

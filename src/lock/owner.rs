//! Who may own a lock, and which hash fields are not owners.

use uuid::Uuid;

/// The hash field that carries the fencing token. Its presence is what makes a hash a lock of ours.
pub const TOKEN_FIELD: &[u8] = b"lock:token";

/// The field by which Redisson marks the hash of a read-write lock.
pub const MODE_FIELD: &[u8] = b"mode";

/// Why an owner was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadOwner {
    /// The owner has no bytes.
    Empty,
    /// The owner is [`TOKEN_FIELD`] or [`MODE_FIELD`], which mean something else in the hash.
    Reserved,
}

/// Accepts any bytes but none at all, and the two reserved fields.
pub fn check_owner(owner: &[u8]) -> Result<(), BadOwner> {
    if owner.is_empty() {
        Err(BadOwner::Empty)
    } else if is_reserved(owner) {
        Err(BadOwner::Reserved)
    } else {
        Ok(())
    }
}

/// Is this field the token's or the read-write marker, and so no owner?
pub fn is_reserved(field: &[u8]) -> bool {
    field == TOKEN_FIELD || field == MODE_FIELD
}

/// Has the field the form of Redisson's owners, `<uuid>:<thread id>`?
pub fn is_redisson(field: &[u8]) -> bool {
    const UUID_LENGTH: usize = 36;
    let Some((uuid, rest)) = field.split_at_checked(UUID_LENGTH) else {
        return false;
    };
    let Some((b':', thread)) = rest.split_first() else {
        return false;
    };
    !thread.is_empty()
        && thread.iter().all(u8::is_ascii_digit)
        && std::str::from_utf8(uuid).is_ok_and(|uuid| Uuid::try_parse(uuid).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "8743c9c0-0795-4907-87fd-6c719a6b4586";

    #[test]
    fn redissons_owners_are_a_uuid_and_a_thread_id() {
        for good in [format!("{UUID}:1"), format!("{UUID}:0042"), format!("{}:7", UUID.to_uppercase())] {
            assert!(is_redisson(good.as_bytes()), "{good}");
        }
        let dashless = UUID.replace('-', "");
        for bad in [
            String::new(),
            UUID.into(),
            format!("{UUID}:"),
            format!("{UUID}:1x"),
            format!("{UUID}:-1"),
            format!("{UUID}1"),
            format!("{dashless}:12345"),
            format!("x{}:1", &UUID[1..]),
            "é".repeat(20),
        ] {
            assert!(!is_redisson(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn any_bytes_may_own_but_none_and_the_reserved() {
        assert_eq!(check_owner(b""), Err(BadOwner::Empty));
        assert_eq!(check_owner(b"mode"), Err(BadOwner::Reserved));
        assert_eq!(check_owner(TOKEN_FIELD), Err(BadOwner::Reserved));
        for good in [&b"\0"[..], b"\xff\xfe", b"MODE", b" ", "🔒".as_bytes()] {
            assert_eq!(check_owner(good), Ok(()));
        }
    }
}

//! How things are written.

use redis_lock_client::Lease;

/// Bytes that are mostly text; what is none is escaped, so that it can do a terminal no harm.
pub fn text(bytes: &[u8]) -> String {
    match str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => bytes.escape_ascii().to_string(),
    }
}

/// What is left of a lease.
pub fn lease(lease: Lease) -> String {
    match lease {
        Lease::Left(left) => format!("{:.1} s", left.as_secs_f64()),
        Lease::Endless => "endless".to_owned(),
    }
}

/// What is left of a lease in milliseconds; `None` for an endless one.
pub fn lease_ms(lease: Lease) -> Option<u64> {
    match lease {
        Lease::Left(left) => u64::try_from(left.as_millis()).ok(),
        Lease::Endless => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_not_steer_the_terminal() {
        assert_eq!(text("schloß".as_bytes()), "schloß");
        assert_eq!(text(b"\x1b[2J"), r"\x1b[2J");
        assert_eq!(text(b"\xff"), r"\xff");
    }
}

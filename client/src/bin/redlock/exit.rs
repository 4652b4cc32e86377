//! The exit statuses.

/// Too few nodes answered.
pub const UNAVAILABLE: u8 = 121;
/// Something that the caller has to mend: an option, or a node's address.
pub const MISUSE: u8 = 125;

//! Who holds a lock.

/// A hold of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold<'a> {
    /// Who has it.
    pub owner: &'a [u8],
    /// How often, at least once.
    pub holds: u64,
    /// Its fencing token; 0 for a hold that Redisson's scripts made.
    pub token: u64,
}

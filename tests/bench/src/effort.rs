//! How long a benchmark may take.

/// The choice between a look and a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// A look: under a minute for everything.
    Quick,
    /// A measurement: under ten minutes for everything.
    Full,
}

impl Effort {
    /// The value for this effort.
    pub fn pick<T>(self, quick: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Full => full,
        }
    }
}

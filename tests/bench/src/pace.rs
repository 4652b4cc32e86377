//! How a client sends its commands. What the server spends on reading and replying, which is the same for all
//! commands, weighs the more the fewer come at a time.

use crate::raw::Batch;

/// How many commands are under way at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Hundreds: the server does little else than carry them out.
    Pipelined,
    /// Sixteen, the usual depth of `redis-benchmark -P`.
    Sixteen,
    /// One: each after the reply to the last, as most clients do.
    OneByOne,
}

impl Pace {
    /// What the tables call it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Pipelined => "pipelined",
            Self::Sixteen => "sixteen at a time",
            Self::OneByOne => "one by one",
        }
    }

    /// An empty batch that is sent so.
    pub fn batch(self) -> Batch {
        match self {
            Self::Pipelined => Batch::pipelined(),
            Self::Sixteen => Batch::at_a_time(16),
            Self::OneByOne => Batch::at_a_time(1),
        }
    }
}

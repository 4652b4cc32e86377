//! Epochs: stretches of time with rules of their own, after each of which everything is deleted.

use clap::ValueEnum;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::grammar::{
    ADMIN, CLIENT, DEMOTIONS, FOREIGN, LOCKS, PAUSED_RELOADS, PAUSES, RELOADS, Rule, STATES, TIDY,
};

/// What may happen in an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Epoch {
    /// Users of the module and nobody else, so that its counts can be checked.
    Tidy,
    /// Anything that one server can be asked for.
    Wild,
    /// The same, with a replica that must end up with the same data.
    Mirrored,
    /// The server itself becomes a replica now and then.
    Demoted,
    /// The module is unloaded and loaded again now and then.
    Swapped,
}

/// What a step does.
#[derive(Clone, Copy, Debug)]
pub enum Deed {
    /// Sends a line of these rules.
    Line(&'static [Rule]),
    /// The same, on a connection that has no transaction open: a server that becomes a replica or pauses its
    /// clients in the middle of one does not always survive the writes that follow, with or without a module.
    Aside(&'static [Rule]),
    /// Sends a command of the module that is broken in some place.
    Mutant,
    /// Looks at a key before and after a command of the module.
    Observe,
    /// Sends bytes that are no command.
    Noise,
}

const TIDY_DEEDS: &[(u32, Deed)] = &[
    (40, Deed::Line(LOCKS)),
    (25, Deed::Observe),
    (10, Deed::Mutant),
    (8, Deed::Line(TIDY)),
    (5, Deed::Line(CLIENT)),
    (1, Deed::Noise),
];

const MIRRORED_DEEDS: &[(u32, Deed)] = &[
    (25, Deed::Line(LOCKS)),
    (25, Deed::Observe),
    (10, Deed::Mutant),
    (15, Deed::Line(STATES)),
    (15, Deed::Line(FOREIGN)),
    (8, Deed::Line(CLIENT)),
    (2, Deed::Line(ADMIN)),
    (1, Deed::Aside(PAUSES)),
    (1, Deed::Noise),
];

const WILD_DEEDS: &[(u32, Deed)] = &[
    (25, Deed::Line(LOCKS)),
    (25, Deed::Observe),
    (12, Deed::Mutant),
    (15, Deed::Line(STATES)),
    (15, Deed::Line(FOREIGN)),
    (8, Deed::Line(CLIENT)),
    (3, Deed::Line(ADMIN)),
    (1, Deed::Aside(PAUSES)),
    (1, Deed::Line(RELOADS)),
    (1, Deed::Aside(PAUSED_RELOADS)),
    (2, Deed::Noise),
];

const DEMOTED_DEEDS: &[(u32, Deed)] = &[
    (30, Deed::Line(LOCKS)),
    (20, Deed::Observe),
    (10, Deed::Line(STATES)),
    (10, Deed::Line(FOREIGN)),
    (5, Deed::Line(CLIENT)),
    (1, Deed::Aside(DEMOTIONS)),
];

impl Epoch {
    /// The `n`th epoch of these kinds: each comes once, then chance decides.
    pub fn nth(n: usize, kinds: &[Self], rng: &mut StdRng) -> Self {
        kinds.get(n).or_else(|| kinds.choose(rng)).copied().unwrap_or(Self::Wild)
    }

    /// What to do next.
    pub fn deed(self, rng: &mut StdRng) -> Deed {
        let deeds = match self {
            Self::Tidy => TIDY_DEEDS,
            Self::Wild | Self::Swapped => WILD_DEEDS,
            Self::Mirrored => MIRRORED_DEEDS,
            Self::Demoted => DEMOTED_DEEDS,
        };
        deeds.choose_weighted(rng, |(weight, _)| *weight).map_or(Deed::Observe, |(_, deed)| *deed)
    }

    /// How it is called in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tidy => "tidy",
            Self::Wild => "wild",
            Self::Mirrored => "mirrored",
            Self::Demoted => "demoted",
            Self::Swapped => "swapped",
        }
    }
}

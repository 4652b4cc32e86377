//! What a benchmark has to say: a table of measurements and the figures that have a target.

use serde::Serialize;

use crate::stats::Spread;

/// All that one call of the program has measured.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The servers' kind and version.
    pub server: String,
    /// What each benchmark has to say.
    pub sections: Vec<Section>,
}

/// One table and the figures drawn from it.
#[derive(Debug, Serialize)]
pub struct Section {
    /// What was measured, on what.
    pub title: String,
    /// The table's header.
    pub columns: Vec<&'static str>,
    /// The table's cells.
    pub rows: Vec<Vec<String>>,
    /// The figures with a target.
    pub figures: Vec<Figure>,
}

impl Section {
    /// A section without rows.
    pub fn new(title: impl Into<String>, columns: &[&'static str]) -> Self {
        Self { title: title.into(), columns: columns.to_vec(), rows: Vec::new(), figures: Vec::new() }
    }
}

/// A figure that ought to be at most its target.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What the figure is of.
    pub name: String,
    /// The figure, and where it comes from many rounds, how they spread.
    pub value: Value,
    /// What it is counted in: nothing for a ratio.
    pub unit: &'static str,
    /// What it must not exceed.
    pub target: f64,
    /// What it would best not exceed.
    pub goal: Option<f64>,
    /// Whether the target is met.
    pub met: bool,
}

/// A number, alone or over many rounds.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// Measured once.
    Single(f64),
    /// Measured in many rounds.
    Rounds(Spread),
}

impl Value {
    /// The number that is held against the target.
    pub fn number(self) -> f64 {
        match self {
            Self::Single(number) => number,
            Self::Rounds(spread) => spread.median,
        }
    }
}

impl Figure {
    /// A ratio over many rounds.
    pub fn ratio(name: impl Into<String>, value: Spread, target: f64) -> Self {
        Self::new(name.into(), Value::Rounds(value), "", target)
    }

    /// A number that was measured once.
    pub fn single(name: impl Into<String>, value: f64, unit: &'static str, target: f64) -> Self {
        Self::new(name.into(), Value::Single(value), unit, target)
    }

    fn new(name: String, value: Value, unit: &'static str, target: f64) -> Self {
        Self { name, value, unit, target, goal: None, met: value.number() <= target }
    }

    /// The same with a goal beyond its target.
    pub fn with_goal(mut self, goal: f64) -> Self {
        self.goal = Some(goal);
        self
    }

    /// How the figure did, in a few words.
    pub fn verdict(&self) -> String {
        let target = if self.met { "met" } else { "MISSED" };
        match self.goal {
            Some(goal) if self.value.number() <= goal => format!("{target}, goal {goal} met"),
            Some(goal) => format!("{target}, goal {goal} missed"),
            None => target.to_owned(),
        }
    }
}

//! What INFO says about the module.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail, ensure};

use crate::link::Link;
use crate::resp::{Reply, words};

/// Counts that only grow.
const GROWING: [&str; 8] =
    ["granted", "denied", "reentered", "renewed", "released", "expired", "forced", "vanished"];

/// The others.
const OTHERS: [&str; 5] =
    ["held", "token", "expiry_lateness_p50_usec", "expiry_lateness_p99_usec", "expiry_lateness_max_usec"];

/// The numbers of `INFO lock`, by their names without `lock_`.
#[derive(Clone, Debug, Default)]
pub struct Counts(BTreeMap<String, i64>);

impl Counts {
    /// Asks for them.
    ///
    /// # Errors
    /// When INFO is not what it should be.
    pub fn read(control: &mut Link) -> anyhow::Result<Self> {
        let Reply::Text(text) = control.ask(&words("INFO lock"))? else { bail!("INFO is no string") };
        let text = String::from_utf8(text)?;
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let counts = lines
            .map(|line| {
                let (name, number) = line.strip_prefix("lock_")?.split_once(':')?;
                Some((name.to_owned(), number.parse().ok()?))
            })
            .collect::<Option<_>>();
        let counts =
            Self(counts.with_context(|| format!("INFO lock has a line that is no number:\n{text}"))?);
        for name in GROWING.iter().chain(&OTHERS) {
            ensure!(counts.0.contains_key(*name), "INFO lock lacks lock_{name}:\n{text}");
        }
        Ok(counts)
    }

    /// One of them.
    pub fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Checks that nothing has been uncounted.
    ///
    /// # Errors
    /// When it has.
    pub fn check_growth(&self, earlier: &Self) -> anyhow::Result<()> {
        for name in GROWING {
            ensure!(self.get(name) >= earlier.get(name), "lock_{name} fell from {}", earlier.get(name));
        }
        ensure!(self.get("held") >= 0, "fewer than no locks are held");
        Ok(())
    }

    /// First holds less ended ones: what ought to be held.
    pub fn balance(&self) -> i64 {
        let ended = ["released", "expired", "forced", "vanished"].map(|name| self.get(name));
        self.get("granted") - ended.iter().sum::<i64>()
    }
}

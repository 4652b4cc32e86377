//! Memory: what is left of it after everything was deleted must not grow.

use std::fmt;

use anyhow::ensure;

/// How many samples are taken until servers have grown to their working size.
const WARM_UP: usize = 10;

/// How far above the middle of those the server's own count may be later, in bytes.
const MAX_GROWTH: i64 = 2 << 20;

/// The same for the process, whose allocator may keep some of what was freed.
const MAX_RSS_GROWTH: i64 = 96 << 20;

/// A look at the memory of a server without keys.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// How many commands it has seen.
    pub commands: u64,
    /// What it says it uses, in bytes.
    pub used: i64,
    /// What the process occupies, in bytes.
    pub rss: i64,
}

/// All samples.
#[derive(Debug, Default)]
pub struct Memory {
    samples: Vec<Sample>,
}

impl Memory {
    /// Takes note of a sample.
    ///
    /// # Errors
    /// When it is too far above those at the beginning.
    pub fn note(&mut self, sample: Sample) -> anyhow::Result<()> {
        self.samples.push(sample);
        let Some(level) = self.level() else { return Ok(()) };
        ensure!(sample.used - level.used <= MAX_GROWTH, "the server's memory grows: {self}");
        ensure!(sample.rss - level.rss <= MAX_RSS_GROWTH, "the process grows: {self}");
        Ok(())
    }

    /// The most that may be in use without a complaint; `None` while anything may be.
    pub fn allowed(&self) -> Option<i64> {
        self.level().map(|level| level.used + MAX_GROWTH / 2)
    }

    /// The middling sample of the warm-up, once that is over.
    fn level(&self) -> Option<Sample> {
        let mut samples = self.samples.get(..WARM_UP)?.to_vec();
        samples.sort_unstable_by_key(|sample| sample.used);
        samples.get(WARM_UP / 2).copied()
    }

    /// Bytes by which the server's count grew, on average, with a million commands after the warm-up:
    /// the slope of the line that fits best.
    fn trend(&self) -> Option<f64> {
        let points: Vec<(f64, f64)> = self.samples.iter().skip(WARM_UP).map(Sample::point).collect();
        let n = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        let rise: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
        (points.len() > 2 && spread > 0.0).then(|| rise / spread)
    }
}

impl Sample {
    fn point(&self) -> (f64, f64) {
        (self.commands as f64 / 1e6, self.used as f64)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(first), Some(last)) = (self.level().or(self.samples.first().copied()), self.samples.last())
        else {
            return write!(f, "memory not measured");
        };
        write!(
            f,
            "memory {} → {} KiB, process {} → {} MiB",
            first.used >> 10,
            last.used >> 10,
            first.rss >> 20,
            last.rss >> 20
        )?;
        match self.trend() {
            Some(slope) => write!(f, ", trend {:+.1} KiB per million commands", slope / 1024.0),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(n: u64, used: i64) -> Sample {
        Sample { commands: n * 1_000_000, used, rss: 0 }
    }

    #[test]
    fn a_steady_level_is_fine_and_a_leak_is_not() -> anyhow::Result<()> {
        let mut memory = Memory::default();
        for n in 0..100 {
            memory.note(sample(n, if n < 4 { 0 } else { 10_000_000 }))?;
        }
        assert_eq!(memory.trend(), Some(0.0));
        let growth = (100..1_000).find_map(|n| memory.note(sample(n, n as i64 * 100_000)).err());
        assert!(growth.is_some_and(|error| error.to_string().contains("memory grows")));
        Ok(())
    }

    #[test]
    fn the_trend_is_bytes_per_million_commands() -> anyhow::Result<()> {
        let mut memory = Memory::default();
        for n in 0..20 {
            memory.note(sample(n, 7 * n as i64))?;
        }
        assert!(memory.trend().is_some_and(|slope| (slope - 7.0).abs() < 1e-6));
        Ok(())
    }
}

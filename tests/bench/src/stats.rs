//! Medians, and how far apart the samples are.

use std::fmt;

use serde::Serialize;

/// The same figure, taken again and again.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Adds a sample.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// Their median and how far they spread.
    pub fn spread(&self) -> Spread {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        Spread { median: quantile(&sorted, 0.5), low: quantile(&sorted, 0.1), high: quantile(&sorted, 0.9) }
    }

    /// The ratio to `base`, sample by sample: what slows one sample down slows its partner.
    pub fn ratio_to(&self, base: &Self) -> Spread {
        let pairs = self.0.iter().zip(&base.0);
        pairs.map(|(own, base)| own / base).collect::<Self>().spread()
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(samples: I) -> Self {
        Self(samples.into_iter().collect())
    }
}

/// A median between the 10th and 90th percentile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Half of the samples are below.
    pub median: f64,
    /// A tenth of the samples is below.
    pub low: f64,
    /// A tenth of the samples is above.
    pub high: f64,
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        write!(f, "{:.digits$} [{:.digits$}–{:.digits$}]", self.median, self.low, self.high)
    }
}

/// Interpolates between the two nearest of the sorted values.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let position = share * last as f64;
    let (below, above) = (position.floor() as usize, position.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * position.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        let samples = Samples(vec![4.0, 1.0, 2.0, 3.0]);
        assert_eq!(samples.spread().median, 2.5);
    }

    #[test]
    fn what_slows_both_leaves_the_ratio_alone() {
        let (own, base) = (Samples(vec![3.0, 30.0]), Samples(vec![2.0, 20.0]));
        let ratio = own.ratio_to(&base);
        assert_eq!((ratio.low, ratio.median, ratio.high), (1.5, 1.5, 1.5));
    }
}

//! How long it takes from a release to the next holder's grant, alone and in a crowd.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::contention;
use crate::cores::{Cores, Pinned};
use crate::effort::Effort;
use crate::pair::{Pair, Trail};
use crate::relay::{InLine, Polling, PublishAndRetry, Relay};
use crate::report::{Figure, Section};

/// What the line's handoff may take of what publish and retry takes.
const TARGET: f64 = 0.6;

/// Handoffs before those that count.
const WARM_UP: usize = 50;

/// Handoffs of one kind.
struct Lane<'a> {
    label: &'static str,
    relay: Box<dyn Relay + 'a>,
    /// Handoffs in a block.
    block: usize,
    /// In nanoseconds.
    taken: Histogram<u64>,
}

impl<'a> Lane<'a> {
    fn new(label: &'static str, relay: impl Relay + 'a, block: usize) -> anyhow::Result<Self> {
        Ok(Self { label, relay: Box::new(relay), block, taken: Histogram::new(3)? })
    }

    fn run_block(&mut self) -> anyhow::Result<()> {
        for _ in 0..self.block {
            let taken = self.relay.hand_over()?;
            self.taken.record(nanos(taken)?)?;
        }
        Ok(())
    }

    fn micros(&self, share: f64) -> f64 {
        self.taken.value_at_quantile(share) as f64 / 1e3
    }

    fn row(&self, base: &Lane<'_>) -> Vec<String> {
        let mut row = vec![self.label.to_owned(), self.taken.len().to_string()];
        row.extend([0.5, 0.99].map(|share| format!("{:.0}", self.micros(share))));
        row.extend([0.5, 0.99].map(|share| format!("{:.3}", self.micros(share) / base.micros(share))));
        row
    }
}

/// Runs the benchmark.
pub fn run(effort: Effort) -> anyhow::Result<Vec<Section>> {
    let mut sections = vec![alone(effort, Cores::One)?, alone(effort, Cores::Two)?];
    sections.extend(contention::run(effort)?);
    Ok(sections)
}

fn alone(effort: Effort, cores: Cores) -> anyhow::Result<Section> {
    let pair = Pair::start(Trail::Nothing);
    let _pinned = Pinned::to(cores, &[&pair.bare, &pair.module])?;
    let mut lanes = [
        Lane::new("LOCK.ACQUIRE … BLOCK", InLine::start(&pair.module)?, 200)?,
        Lane::new("Redisson: publish and retry", PublishAndRetry::start(&pair.bare)?, 200)?,
        Lane::new("SET NX PX every 10 ms", Polling::start(&pair.bare)?, 20)?,
    ];
    for lane in &mut lanes[..2] {
        for _ in 0..WARM_UP {
            lane.relay.hand_over()?;
        }
    }
    for _ in 0..effort.pick(8, 40) {
        lanes.iter_mut().try_for_each(Lane::run_block)?;
    }

    let [line, publish, _] = &lanes;
    let columns = ["", "handoffs", "p50, µs", "p99", "p50, × Redisson", "p99"];
    let title = format!("From a release to the grant of the one who waits, {}", cores.label());
    let mut section = Section::new(title, &columns);
    section.rows = lanes.iter().map(|lane| lane.row(publish)).collect();
    for (share, which) in [(0.5, "p50"), (0.99, "p99")] {
        let name = format!("handoff / publish and retry, {which}, {}", cores.label());
        let ratio = line.micros(share) / publish.micros(share);
        section.figures.push(Figure::single(name, ratio, "", TARGET));
    }
    Ok(section)
}

fn nanos(duration: Duration) -> anyhow::Result<u64> {
    Ok(u64::try_from(duration.as_nanos())?)
}

//! What locks cost as more and more of them are held, in time and in memory.

use crate::contender::Contender;
use crate::effort::Effort;
use crate::holder::Holder;
use crate::lane::interleave;
use crate::report::{Figure, Section};
use crate::stats::Samples;

/// In the order of the tables' columns: plain keys, Redisson's hashes, the module's locks.
const CONTENDERS: [Contender; 3] = [Contender::SetDel, Contender::Redisson, Contender::Module];

/// What was measured while this many locks were held.
struct Point {
    held: usize,
    /// A cycle's cost, for each contender.
    cycles: Vec<Samples>,
    /// A lock's memory, for each contender.
    bytes: Vec<f64>,
}

impl Point {
    fn measure(holders: &mut [Holder], held: usize, rounds: usize) -> anyhow::Result<Self> {
        for holder in &mut *holders {
            holder.hold(held)?;
        }
        let bytes = bytes_per_lock(holders, held)?;
        let mut lanes = holders.iter().map(Holder::lane).collect::<Result<Vec<_>, _>>()?;
        interleave(&mut lanes, rounds, 1)?;
        let cycles = lanes.into_iter().map(|lane| lane.samples).collect();
        Ok(Self { held, cycles, bytes })
    }

    /// How many times a cycle of this contender costs here what it cost there.
    fn growth_since(&self, start: &Self, contender: usize) -> f64 {
        let median = |point: &Self| point.cycles[contender].spread().median;
        median(self) / median(start)
    }
}

fn bytes_per_lock(holders: &mut [Holder], locks: usize) -> anyhow::Result<Vec<f64>> {
    let bytes = holders.iter_mut().map(|holder| holder.bytes_per_lock(locks));
    bytes.collect()
}

/// Runs the benchmark.
pub fn run(effort: Effort) -> anyhow::Result<Vec<Section>> {
    let sizes = effort.pick(&[1_000, 100_000][..], &[1_000, 100_000, 1_000_000]);
    let holders = CONTENDERS.into_iter().map(Holder::start);
    let mut holders = holders.collect::<anyhow::Result<Vec<_>>>()?;
    let mut points = Vec::new();
    for &held in sizes {
        points.push(Point::measure(&mut holders, held, effort.pick(6, 20))?);
    }
    for holder in &mut holders {
        holder.release_all()?;
    }
    let most = points.last().map_or(0, |point| point.held);
    let left = bytes_per_lock(&mut holders, most)?;
    Ok(vec![time(&points), memory(&points, &left)])
}

fn time(points: &[Point]) -> Section {
    let columns = ["locks held", "SET + DEL, CPU ns", "Redisson", "LOCK.*", "× SET + DEL"];
    let title = "Acquire and release of a free lock while others are held";
    let mut section = Section::new(title, &columns);
    for point in points {
        let [plain, _, module] = &point.cycles[..] else {
            continue;
        };
        let ratio = module.ratio_to(plain);
        let mut row = vec![point.held.to_string()];
        row.extend(point.cycles.iter().map(|cycle| format!("{:.0}", cycle.spread())));
        row.push(format!("{ratio:.3}"));
        section.rows.push(row);
        let name = format!("cycle / SET NX PX + DEL, {} locks held", point.held);
        section.figures.push(Figure::ratio(name, ratio, 1.5).with_goal(1.25));
    }
    if let [start, .., end] = points {
        let growth = end.growth_since(start, 2) / end.growth_since(start, 0);
        let name = format!("growth from {} to {} held, beside SET + DEL's", start.held, end.held);
        section.figures.push(Figure::single(name, growth, "", 1.1));
    }
    section
}

fn memory(points: &[Point], left: &[f64]) -> Section {
    let columns = ["locks held", "plain keys, bytes each", "Redisson's hashes", "LOCK.*", "× Redisson"];
    let mut section = Section::new("Memory per lock that is held", &columns);
    for point in points {
        let [_, redisson, module] = point.bytes[..] else {
            continue;
        };
        let mut row = vec![point.held.to_string()];
        row.extend(point.bytes.iter().map(|bytes| format!("{bytes:.1}")));
        row.push(format!("{:.2}", module / redisson));
        section.rows.push(row);
        let name = format!("bytes per lock / Redisson's hash, {} locks held", point.held);
        section.figures.push(Figure::single(name, module / redisson, "", 1.5));
    }
    let mut row = vec!["left after release".to_owned()];
    row.extend(left.iter().map(|bytes| format!("{bytes:.2}")));
    row.push(String::new());
    section.rows.push(row);
    if let [.., module] = left[..] {
        let name = "left after all were released, per lock";
        section.figures.push(Figure::single(name, module, "bytes", 1.0));
    }
    section
}

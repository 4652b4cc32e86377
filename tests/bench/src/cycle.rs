//! What a lock costs the server, beside the ways to lock without the module.

use crate::contender::Contender;
use crate::effort::Effort;
use crate::lane::{Lane, Measured, add_run, interleave};
use crate::pace::Pace;
use crate::pair::{Pair, Trail};
use crate::raw::{Batch, RawConnection, Reply};
use crate::report::{Figure, Section};
use crate::scripts::Scripts;
use crate::stats::Samples;

/// Distinct names in a batch.
const NAMES: usize = 1_000;

/// How often a batch asks for each name that is taken.
const DENIALS: usize = 4;

/// A batch whose cost is of interest.
struct Work {
    label: &'static str,
    commands: &'static [&'static str],
    batch: Batch,
    operations: usize,
}

/// Runs the benchmark.
pub fn run(effort: Effort) -> anyhow::Result<Vec<Section>> {
    let mut sections = Vec::new();
    for pace in [Pace::Pipelined, Pace::Sixteen] {
        for trail in [Trail::Nothing, Trail::AppendOnlyFile] {
            sections.push(cycle(effort, trail, pace)?);
        }
        sections.push(denied(effort, pace)?);
    }
    sections.push(cycle(effort, Trail::Replica, Pace::Pipelined)?);
    Ok(sections)
}

fn cycle(effort: Effort, trail: Trail, pace: Pace) -> anyhow::Result<Section> {
    let circumstances = format!("{}, {}", trail.label(), pace.label());
    let title = format!("Acquire and release of a free lock, {circumstances}");
    let measured = compare(effort, trail, |contender, scripts, _| {
        let mut batch = contender.cycles(scripts, 0..NAMES, pace);
        if trail == Trail::Replica {
            // What the replica still has to be sent belongs to this round.
            batch.push(&["WAIT", "1", "5000"], Reply::Integer(1));
        }
        Ok(Some(Work {
            label: contender.cycle_label(),
            commands: contender.commands(),
            batch,
            operations: NAMES,
        }))
    })?;
    let mut section = table(title, &measured);
    if trail != Trail::Replica {
        section.figures = cycle_figures(&measured, &circumstances);
    }
    Ok(section)
}

fn denied(effort: Effort, pace: Pace) -> anyhow::Result<Section> {
    let measured = compare(effort, Trail::Nothing, |contender, scripts, connection| {
        let (label, commands): (_, &'static [_]) = match contender {
            Contender::SetDel => ("denied SET NX PX", &["set"]),
            Contender::Redisson => ("denied Redisson: EVALSHA", &["evalsha"]),
            Contender::Module => ("denied LOCK.ACQUIRE", &["lock.acquire"]),
            Contender::SetScript | Contender::SetDelifeq => return Ok(None),
        };
        connection.send(&contender.taken(scripts, NAMES))?;
        Ok(Some(Work {
            label,
            commands,
            batch: contender.denials(scripts, NAMES, DENIALS, pace),
            operations: NAMES * DENIALS,
        }))
    })?;
    let mut section =
        table(format!("Acquire of a lock that somebody else holds, {}", pace.label()), &measured);
    if let [base, .., module] = &measured[..] {
        let ratio = module.runs.ratio_to(&base.runs);
        section.figures.push(Figure::ratio(
            format!("denied / denied SET NX PX, {}", pace.label()),
            ratio,
            1.3,
        ));
    }
    Ok(section)
}

/// Measures what `plan` makes of each contender, each run on servers of its own.
fn compare(
    effort: Effort,
    trail: Trail,
    plan: impl Fn(Contender, &Scripts, &mut RawConnection) -> anyhow::Result<Option<Work>>,
) -> anyhow::Result<Vec<Measured>> {
    let mut measured = Vec::new();
    for _ in 0..effort.pick(3, 9) {
        let pair = Pair::start(trail);
        let mut lanes = Vec::new();
        for contender in Contender::on(&pair.bare) {
            let server = match contender {
                Contender::Module => &pair.module,
                _ => &pair.bare,
            };
            let scripts = Scripts::load(&mut server.connect())?;
            let mut connection = RawConnection::open(server.port())?;
            if let Some(work) = plan(contender, &scripts, &mut connection)? {
                let lane = Lane::new(work.label, server, work.batch, work.operations)?;
                lanes.push(lane.counting(work.commands));
            }
        }
        interleave(&mut lanes, effort.pick(5, 11), effort.pick(2, 5))?;
        add_run(&mut measured, lanes)?;
    }
    Ok(measured)
}

/// The first row is what the others are held against.
fn table(title: String, measured: &[Measured]) -> Section {
    let columns = ["", "CPU ns", "× the first", "µs per call by INFO commandstats"];
    let mut section = Section::new(title, &columns);
    for lane in measured {
        section.rows.push(vec![
            lane.label.clone(),
            format!("{:.0}", lane.runs.spread()),
            format!("{:.3}", lane.runs.ratio_to(&measured[0].runs)),
            calls(lane),
        ]);
    }
    section
}

/// For example `set 0.27, del 0.12`.
fn calls(lane: &Measured) -> String {
    let usec = |(command, usec): &(&str, Samples)| format!("{command} {:.2}", usec.spread().median);
    lane.calls.iter().map(usec).collect::<Vec<_>>().join(", ")
}

fn cycle_figures(measured: &[Measured], circumstances: &str) -> Vec<Figure> {
    let Some((own, others)) = measured.split_last() else {
        return Vec::new();
    };
    let targets = [
        (Contender::SetDel, 1.5, Some(1.25)),
        (Contender::SetScript, 1.0, None),
        // What 1.5 and 1.25 × SET + DEL amount to.
        (Contender::SetDelifeq, 1.2, Some(1.0)),
        (Contender::Redisson, 0.2, None),
    ];
    let mut figures = Vec::new();
    for (contender, target, goal) in targets {
        let label = contender.cycle_label();
        let Some(other) = others.iter().find(|other| other.label == label) else {
            continue;
        };
        let ratio = own.runs.ratio_to(&other.runs);
        let figure = Figure::ratio(format!("cycle / {label}, {circumstances}"), ratio, target);
        figures.push(match goal {
            Some(goal) => figure.with_goal(goal),
            None => figure,
        });
    }
    figures
}

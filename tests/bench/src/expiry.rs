//! How late a subscriber hears that a lease has ended, in a keyspace full of other keys that
//! expire some day.

use std::collections::HashMap;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use hdrhistogram::Histogram;
use redis::{Connection, Msg};
use redis_lock_testkit::Server;

use crate::contender::OWNER;
use crate::cpu;
use crate::effort::Effort;
use crate::raw::{Batch, RawConnection, Reply};
use crate::report::{Figure, Section};

/// Leases that are watched at a time.
const LEASES: usize = 1_000;

/// When the first of them ends, after the last has begun.
const HEAD_START: Duration = Duration::from_secs(1);

/// How far apart two ends are where they are spread.
const STEP: Duration = Duration::from_millis(4);

/// How long after the last end is waited for what has not been heard of.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long after the last announcement is waited for one that comes twice.
const AFTERMATH: Duration = Duration::from_millis(300);

/// What ends, and how its end is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watched {
    Lock,
    PlainKey,
}

impl Watched {
    fn name(self, index: usize) -> String {
        match self {
            Self::Lock => format!("orders:{index:08}"),
            Self::PlainKey => format!("sessions:{index:08}"),
        }
    }

    fn pattern(self) -> &'static str {
        match self {
            Self::Lock => "redisson_lock__channel:*",
            Self::PlainKey => "__keyevent@0__:expired",
        }
    }

    /// Whose end the message announces.
    fn announced(self, message: &Msg) -> Option<String> {
        match self {
            Self::Lock => {
                let name = message.get_channel_name().split_once('{')?.1;
                name.strip_suffix('}').map(str::to_owned)
            }
            Self::PlainKey => message.get_payload().ok(),
        }
    }

    fn begin(self, batch: &mut Batch, name: &str, lease: Duration) {
        let lease = lease.as_millis().to_string();
        match self {
            Self::Lock => batch.push(&["LOCK.ACQUIRE", name, OWNER, &lease], Reply::Holds(1)),
            Self::PlainKey => batch.push(&["SET", name, OWNER, "PX", &lease], Reply::Ok),
        }
    }
}

/// Announcements with the time at which they were heard.
type Heard = Vec<(String, Duration)>;

/// What became of the leases of one run.
struct Run {
    label: &'static str,
    lateness: Histogram<u64>,
    early: usize,
    missing: usize,
    /// Announcements beyond one for each lease.
    extra: usize,
    /// How long the server was kept from the processor: no fault of its own.
    waited: Duration,
}

impl Run {
    fn new(label: &'static str, ends: &HashMap<String, Duration>, heard: &Heard) -> anyhow::Result<Self> {
        let mut run = Self {
            label,
            lateness: Histogram::new(3)?,
            early: 0,
            missing: ends.len(),
            extra: 0,
            waited: Duration::ZERO,
        };
        let mut open = ends.clone();
        for (name, at) in heard {
            let Some(end) = open.remove(name) else {
                run.extra += 1;
                continue;
            };
            run.missing -= 1;
            match at.checked_sub(end) {
                Some(late) => run.lateness.record(u64::try_from(late.as_micros())?)?,
                None => run.early += 1,
            }
        }
        Ok(run)
    }

    fn row(&self) -> Vec<String> {
        let mut row = vec![self.label.to_owned()];
        row.extend(
            [0.5, 0.99, 1.0]
                .map(|share| self.millis(share).map_or("-".to_owned(), |late| format!("{late:.2}"))),
        );
        row.extend([self.early, self.missing, self.extra].map(|count| count.to_string()));
        row.push(self.waited.as_millis().to_string());
        row
    }

    /// Nothing where no end was announced in time.
    fn millis(&self, share: f64) -> Option<f64> {
        (!self.lateness.is_empty()).then(|| self.lateness.value_at_quantile(share) as f64 / 1e3)
    }

    fn figures(&self) -> Vec<Figure> {
        let wrong = (self.early + self.missing + self.extra) as f64;
        let late = format!("unlock notification late, {}, p99", self.label);
        let amiss = format!("unlock notifications early, missing or twice, {}", self.label);
        vec![
            Figure::single(late, self.millis(0.99).unwrap_or(f64::INFINITY), "ms", 5.0),
            Figure::single(amiss, wrong, "", 0.0),
        ]
    }
}

/// Runs the benchmark.
pub fn run(effort: Effort) -> anyhow::Result<Vec<Section>> {
    let others = effort.pick(100_000, 1_000_000);
    let server = Server::with_module().start();
    fill(&server, others)?;
    let spread = spread(&server, Watched::Lock, "leases that end one after the other")?;
    let burst = burst(&server)?;
    let own = own_account(&mut server.connect())?;
    let events = expired_events(&server)?;

    let title = format!("{LEASES} leases end among {others} other volatile keys");
    let columns = ["", "p50, ms late", "p99", "max", "early", "missing", "twice", "ms kept from the CPU"];
    let mut section = Section::new(title, &columns);
    section.rows = vec![spread.row(), burst.row(), events.row(), own];
    section.figures = [spread.figures(), burst.figures()].concat();
    Ok(vec![section])
}

/// Adds keys that expire long after the benchmark.
fn fill(server: &Server, keys: usize) -> anyhow::Result<()> {
    let mut raw = RawConnection::open(server.port())?;
    let mut batch = Batch::pipelined();
    for index in 0..keys {
        let life = (3_600_000 + index).to_string();
        batch.push(&["SET", &format!("other:{index:08}"), "v", "PX", &life], Reply::Ok);
    }
    raw.send(&batch)
}

/// Leases that end one after the other, but were not taken in that order.
fn spread(server: &Server, watched: Watched, label: &'static str) -> anyhow::Result<Run> {
    let mut batch = Batch::pipelined();
    for index in 0..LEASES {
        let place = u32::try_from(index * 389 % LEASES)?;
        watched.begin(&mut batch, &watched.name(index), HEAD_START + STEP * place);
    }
    observe(server, watched, label, &batch)
}

/// Leases that all end in the same millisecond.
fn burst(server: &Server) -> anyhow::Result<Run> {
    let mut batch = Batch::pipelined();
    let end = (now()? + HEAD_START).as_millis().to_string();
    for index in 0..LEASES {
        let name = Watched::Lock.name(index);
        Watched::Lock.begin(&mut batch, &name, HEAD_START * 2);
        batch.push(&["PEXPIREAT", &name, &end], Reply::Integer(1));
    }
    observe(server, Watched::Lock, "leases that end at once", &batch)
}

/// For comparison, what the server itself says of plain keys.
fn expired_events(server: &Server) -> anyhow::Result<Run> {
    redis::cmd("CONFIG").arg(&["SET", "notify-keyspace-events", "Ex"]).exec(&mut server.connect())?;
    spread(server, Watched::PlainKey, "plain keys: the server's `expired` event")
}

/// Begins the leases and listens until all have been announced, or should have been.
fn observe(server: &Server, watched: Watched, label: &'static str, begin: &Batch) -> anyhow::Result<Run> {
    let limit = HEAD_START + STEP * u32::try_from(LEASES)? + PATIENCE;
    let waited = cpu::waited(server)?;
    let listener = listen(server, watched, limit)?;
    RawConnection::open(server.port())?.send(begin)?;
    let ends = ends(&mut server.connect(), watched)?;
    let heard = listener.join().ok().context("the listener panicked")??;
    let run = Run::new(label, &ends, &heard)?;
    Ok(Run { waited: cpu::waited(server)? - waited, ..run })
}

/// When each lease ends, as the server has it.
fn ends(connection: &mut Connection, watched: Watched) -> anyhow::Result<HashMap<String, Duration>> {
    let names: Vec<String> = (0..LEASES).map(|index| watched.name(index)).collect();
    let mut pipeline = redis::pipe();
    for name in &names {
        pipeline.cmd("PEXPIRETIME").arg(name);
    }
    let ends: Vec<u64> = pipeline.query(connection)?;
    Ok(names.into_iter().zip(ends.into_iter().map(Duration::from_millis)).collect())
}

/// Subscribes and returns once the server has confirmed it.
fn listen(
    server: &Server,
    watched: Watched,
    limit: Duration,
) -> anyhow::Result<JoinHandle<anyhow::Result<Heard>>> {
    let mut connection = server.connect();
    let (subscribed, ready) = mpsc::channel();
    let listener = thread::spawn(move || {
        let deadline = Instant::now() + limit;
        let mut subscription = connection.as_pubsub();
        subscription.psubscribe(watched.pattern())?;
        subscribed.send(())?;
        let mut heard = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let patience = if heard.len() < LEASES { left } else { left.min(AFTERMATH) };
            if patience.is_zero() {
                break;
            }
            subscription.set_read_timeout(Some(patience))?;
            match subscription.get_message() {
                Ok(message) => {
                    let at = now()?;
                    heard.extend(watched.announced(&message).map(|name| (name, at)));
                }
                Err(error) if error.is_timeout() => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(heard)
    });
    ready.recv().context("the listener could not subscribe")?;
    Ok(listener)
}

/// The module's own account, since the server's start.
fn own_account(connection: &mut Connection) -> anyhow::Result<Vec<String>> {
    let info: String = redis::cmd("INFO").arg("lock").query(connection)?;
    let millis = |which: &str| {
        let field = format!("lock_expiry_lateness_{which}_usec:");
        let usec = info.lines().find_map(|line| line.strip_prefix(&field));
        match usec.and_then(|usec| usec.trim().parse::<f64>().ok()) {
            Some(usec) => format!("{:.2}", usec / 1e3),
            None => "-".to_owned(),
        }
    };
    let mut row = vec!["both kinds of leases: the module's INFO".to_owned()];
    row.extend(["p50", "p99", "max"].map(millis));
    row.extend(["", "", "", ""].map(str::to_owned));
    Ok(row)
}

fn now() -> anyhow::Result<Duration> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?)
}

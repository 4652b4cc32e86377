//! What the server says of a lock's waiting line, and of its commands.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use redis::{Connection, Value};

/// Everybody has joined the line well within this.
const PATIENCE: Duration = Duration::from_secs(60);

/// A wait without end.
pub const FOREVER: &str = "0";

/// Owners of the same length as a UUID and a thread's number.
pub fn owner(index: usize) -> String {
    format!("b1b7f3a2-58d4-4f0e-a1c7-0e9d3c5a6f24:{index}")
}

/// How many wait for the lock.
pub fn waiters(connection: &mut Connection, name: &str) -> anyhow::Result<usize> {
    let Value::Array(fields) = redis::cmd("LOCK.INFO").arg(name).query(connection)? else {
        anyhow::bail!("LOCK.INFO answers no array");
    };
    let is_waiters = |field: &Value| *field == Value::BulkString(b"waiters".to_vec());
    let waiters = fields.chunks_exact(2).find(|pair| is_waiters(&pair[0])).map(|pair| &pair[1]);
    match waiters {
        Some(Value::Int(count)) => Ok(usize::try_from(*count)?),
        other => anyhow::bail!("LOCK.INFO says of its waiters {other:?}"),
    }
}

/// Asks `count` until it answers this number.
pub fn wait_until(
    number: usize,
    what: &str,
    mut count: impl FnMut() -> anyhow::Result<usize>,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = count()?;
        if now == number {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{now} {what} instead of {number}");
    }
}

/// Waits until this many wait for the lock.
pub fn wait_for_waiters(connection: &mut Connection, name: &str, number: usize) -> anyhow::Result<()> {
    wait_until(number, "wait", || waiters(connection, name))
}

/// A number from a section of INFO.
pub fn info(connection: &mut Connection, section: &str, field: &str) -> anyhow::Result<u64> {
    let info: String = redis::cmd("INFO").arg(section).query(connection)?;
    let number = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let number = number.with_context(|| format!("INFO {section} without {field}"))?;
    Ok(number.trim().parse()?)
}

/// How often each of these commands has been called so far.
pub fn calls(connection: &mut Connection, commands: &[&str]) -> anyhow::Result<Vec<u64>> {
    let stats: String = redis::cmd("INFO").arg("commandstats").query(connection)?;
    let calls = |command: &&str| calls_of(&stats, command).unwrap_or(0);
    Ok(commands.iter().map(calls).collect())
}

/// Finds a command in INFO commandstats: `cmdstat_get:calls=2,usec=3,…`.
fn calls_of(stats: &str, command: &str) -> Option<u64> {
    let fields = stats.lines().find_map(|line| {
        let (name, fields) = line.strip_prefix("cmdstat_")?.split_once(':')?;
        name.eq_ignore_ascii_case(command).then_some(fields)
    })?;
    fields.split(',').find_map(|field| field.strip_prefix("calls="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_found_whatever_the_case_of_the_command() {
        let stats = "cmdstat_set:calls=1,usec=9\r\ncmdstat_LOCK.ACQUIRE:calls=12,usec=3\r\n";
        assert_eq!(calls_of(stats, "lock.acquire"), Some(12));
        assert_eq!(calls_of(stats, "lock"), None);
    }
}

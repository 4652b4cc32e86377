//! What an operator can set, and how the arguments of the load directive say it.

use std::ops::RangeInclusive;

/// What `max-ttl` may be: a lease of more than ten years is a mistake, whatever an operator sets.
pub const MAX_TTL_RANGE: RangeInclusive<i64> = 1..=10 * 366 * 24 * 60 * 60 * 1000;

/// What `grace-period` may be: as long as the longest lease.
pub const GRACE_PERIOD_RANGE: RangeInclusive<i64> = 0..=*MAX_TTL_RANGE.end();

/// What `max-waiters` may be.
pub const MAX_WAITERS_RANGE: RangeInclusive<i64> = 0..=10_000_000;

/// What an operator can set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `max-ttl`: the longest lease granted, in milliseconds.
    pub max_ttl: u64,
    /// `grace-period`: for how many milliseconds after a start or a promotion nothing is granted.
    pub grace_period: u64,
    /// `max-waiters`: how many may wait at once, whatever for.
    pub max_waiters: usize,
    /// `channel-prefix`: the channels of unlock notifications begin so.
    pub channel_prefix: Vec<u8>,
    /// `sharded-publish`: in Cluster, publish to the slot's subscribers only.
    pub sharded_publish: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_ttl: 24 * 60 * 60 * 1000,
            grace_period: 0,
            max_waiters: 100_000,
            channel_prefix: b"redisson_lock__channel".to_vec(),
            sharded_publish: false,
        }
    }
}

impl Settings {
    /// The defaults, changed by the arguments of the load directive: names and values in turn.
    pub fn from_args(args: &[&[u8]]) -> Result<Self, String> {
        let mut settings = Self::default();
        let pairs = args.chunks_exact(2);
        if let [name] = pairs.remainder() {
            return Err(format!("the argument {:?} has no value", String::from_utf8_lossy(name)));
        }
        for pair in pairs {
            settings.set(pair[0], pair[1])?;
        }
        Ok(settings)
    }

    fn set(&mut self, name: &[u8], value: &[u8]) -> Result<(), String> {
        let text = String::from_utf8_lossy(value);
        match name.to_ascii_lowercase().as_slice() {
            b"max-ttl" => self.max_ttl = number("max-ttl", &text, &MAX_TTL_RANGE)?.unsigned_abs(),
            b"grace-period" => {
                self.grace_period = number("grace-period", &text, &GRACE_PERIOD_RANGE)?.unsigned_abs();
            }
            b"max-waiters" => {
                self.max_waiters = number("max-waiters", &text, &MAX_WAITERS_RANGE)?.unsigned_abs() as usize;
            }
            b"channel-prefix" if value.contains(&0) => {
                return Err("channel-prefix must not contain a NUL byte".into());
            }
            b"channel-prefix" => self.channel_prefix = value.to_vec(),
            b"sharded-publish" => {
                self.sharded_publish = match value.to_ascii_lowercase().as_slice() {
                    b"yes" => true,
                    b"no" => false,
                    _ => return Err(format!("sharded-publish is {text:?}, but must be yes or no")),
                };
            }
            _ => {
                let name = String::from_utf8_lossy(name);
                return Err(format!(
                    "there is no argument {name:?}; there are max-ttl, grace-period, max-waiters, channel-prefix and sharded-publish"
                ));
            }
        }
        Ok(())
    }
}

fn number(name: &str, text: &str, range: &RangeInclusive<i64>) -> Result<i64, String> {
    let value = text.parse().ok().filter(|value| range.contains(value));
    value.ok_or_else(|| {
        format!("{name} is {text:?}, but must be a number from {} to {}", range.start(), range.end())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_change_the_defaults() {
        let args: [&[u8]; 10] = [
            b"MAX-TTL",
            b"1000",
            b"max-waiters",
            b"5",
            b"grace-period",
            b"7",
            b"channel-prefix",
            b"p",
            b"sharded-publish",
            b"yes",
        ];
        let expected = Settings {
            max_ttl: 1000,
            max_waiters: 5,
            grace_period: 7,
            channel_prefix: b"p".to_vec(),
            sharded_publish: true,
        };
        assert_eq!(Settings::from_args(&args), Ok(expected));
        assert_eq!(Settings::from_args(&[]), Ok(Settings::default()));
    }

    #[test]
    fn a_wrong_argument_is_named() {
        let refused = |args: &[&[u8]]| Settings::from_args(args).expect_err("refused");
        assert!(refused(&[b"max-tll", b"1"]).contains("max-tll"));
        assert!(refused(&[b"max-ttl"]).contains("max-ttl"));
        for value in ["0", "-1", "x", "", "99999999999999999999"] {
            assert!(refused(&[b"max-ttl", value.as_bytes()]).contains("max-ttl"));
        }
        for value in ["-1", "x", "10000001"] {
            assert!(refused(&[b"max-waiters", value.as_bytes()]).contains("max-waiters"));
        }
        assert!(refused(&[b"sharded-publish", b"maybe"]).contains("maybe"));
        assert!(refused(&[b"channel-prefix", b"a\0b"]).contains("channel-prefix"));
    }
}

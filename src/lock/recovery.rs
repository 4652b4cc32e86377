//! When the keys that held locks have lost are put back: as soon as there is room for them, but not so often
//! that the server takes the same keys away again and again.

use super::MonotonicMs;

/// How soon to try again after a first loss, in milliseconds.
const SHORTEST_PAUSE: u64 = 20;

/// How long to leave a server alone that takes away what was put back, in milliseconds.
const LONGEST_PAUSE: u64 = 5_000;

/// How soon to look again whether there is room, in milliseconds.
const POLL: u64 = 100;

/// Under this part of `maxmemory` there is room enough to put keys back without a pause.
const AMPLE: f32 = 0.95;

/// How the server's memory stands to its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// There is room, or no limit.
    Ample,
    /// It is nearly used up: to put a key back may cost another one.
    Tight,
    /// It is used up.
    Full,
}

impl Memory {
    /// `ratio` is the used part of the limit, 0 where there is none.
    pub fn from_ratio(ratio: f32) -> Self {
        match ratio {
            ratio if ratio > 1.0 => Self::Full,
            ratio if ratio >= AMPLE => Self::Tight,
            _ => Self::Ample,
        }
    }
}

/// Paces the putting back.
#[derive(Debug, Default)]
pub struct Recovery {
    /// When a key is put back next, if memory is tight.
    try_at: MonotonicMs,
    /// When to look next.
    look_at: MonotonicMs,
    pause: u64,
    /// Something was put back since the last loss.
    is_at_stake: bool,
}

impl Recovery {
    /// A held lock has lost its key.
    pub fn lost(&mut self, now: MonotonicMs) {
        let soon_after = now.since(self.try_at) <= self.pause;
        if self.is_at_stake && soon_after {
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
            self.is_at_stake = false;
        } else if !soon_after {
            self.pause = SHORTEST_PAUSE;
        }
        self.try_at = self.try_at.max(now.plus(self.pause));
        self.look_at = self.look_at.min(now);
    }

    /// May keys be put back now? Whatever the answer, [`Recovery::next_look`] is later.
    pub fn may_put_back(&mut self, memory: Memory, now: MonotonicMs) -> bool {
        let may = match memory {
            Memory::Ample => true,
            Memory::Tight => now >= self.try_at,
            Memory::Full => false,
        };
        self.look_at = now.plus(POLL);
        if may {
            self.try_at = now;
            self.is_at_stake = true;
        } else if memory == Memory::Tight {
            self.look_at = self.look_at.min(self.try_at);
        }
        may
    }

    /// When to look whether keys may be put back, if there are any.
    pub fn next_look(&self) -> MonotonicMs {
        self.look_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn room_is_used_at_once() {
        let mut recovery = Recovery::default();
        recovery.lost(MonotonicMs(1000));
        assert_eq!(recovery.next_look(), MonotonicMs(0));
        assert!(!recovery.may_put_back(Memory::Full, MonotonicMs(1000)));
        assert!(!recovery.may_put_back(Memory::Tight, MonotonicMs(1001)));
        assert!(recovery.may_put_back(Memory::Ample, MonotonicMs(1002)));
        assert!(recovery.may_put_back(Memory::Tight, MonotonicMs(1000 + SHORTEST_PAUSE)));
    }

    #[test]
    fn the_parts_of_the_limit() {
        let told = [0.0, 0.5, 0.97, 1.0, 1.01].map(Memory::from_ratio);
        assert_eq!(told, [Memory::Ample, Memory::Ample, Memory::Tight, Memory::Tight, Memory::Full]);
    }

    proptest! {
        /// A server that takes away at once whatever is put back, and memory that stays tight.
        #[test]
        fn there_is_no_endless_loop(step in 1..50_u64) {
            let mut recovery = Recovery::default();
            let mut put_back = Vec::new();
            recovery.lost(MonotonicMs(1));
            for now in (1..60_000).step_by(step as usize) {
                let now = MonotonicMs(now);
                if now >= recovery.next_look() && recovery.may_put_back(Memory::Tight, now) {
                    put_back.push(now);
                    recovery.lost(now);
                }
            }
            prop_assert!((12..=24).contains(&put_back.len()), "{} times", put_back.len());
            prop_assert!(put_back.windows(2).all(|two| two[1].since(two[0]) <= LONGEST_PAUSE + POLL));
        }

        #[test]
        fn a_calm_server_is_tried_soon(calm in LONGEST_PAUSE + 1..1_000_000_u64) {
            let mut recovery = Recovery::default();
            for now in 1..40_u64 {
                recovery.lost(MonotonicMs(now));
                recovery.may_put_back(Memory::Ample, MonotonicMs(now));
            }
            let now = MonotonicMs(40 + calm);
            recovery.lost(now);
            prop_assert!(!recovery.may_put_back(Memory::Tight, now));
            prop_assert!(recovery.may_put_back(Memory::Tight, now.plus(SHORTEST_PAUSE)));
        }
    }
}

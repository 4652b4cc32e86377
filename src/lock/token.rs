//! Fencing tokens: numbers that only grow, so that a store can tell a late holder from a present one.
//!
//! The counter starts at the wall clock in microseconds and then counts by one. A node cannot grant
//! a million locks a second for its whole life, so the clock at the next start (or at a promotion)
//! is above every token of the life before, with nothing persisted. The price is an assumption: the
//! wall clock is not behind its own past by more than the time that the node was down.

/// The largest token: the largest integer that a double (JSON, Lua, JavaScript) carries exactly.
pub const MAX_TOKEN: u64 = (1 << 53) - 1;

/// How far `TOKEN` may run ahead of the node's clock: a day, in microseconds.
const MAX_LEAD: u64 = 24 * 60 * 60 * 1_000_000;

/// A stored token above this (microseconds up to the year 2112) was not handed out by any node.
/// Honouring it would let one hand-made hash use up the tokens for good.
const MAX_CREDIBLE: u64 = 1 << 52;

/// The counter has reached [`MAX_TOKEN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokensExhausted;

/// The last token that this node gave or saw.
#[derive(Debug, Default)]
pub struct TokenCounter {
    last: u64,
}

impl TokenCounter {
    /// Starts counting from the wall clock, in microseconds since the Unix epoch. Never goes back.
    pub fn seed(&mut self, now_us: u64) {
        self.last = self.last.max(now_us);
    }

    /// Takes note of a token found in the data: restored, replicated, loaded or moved in.
    pub fn observe(&mut self, token: u64) {
        if token <= MAX_CREDIBLE {
            self.last = self.last.max(token);
        }
    }

    /// May a client propose this token, by this node's clock (microseconds since the Unix epoch)?
    /// Not if it lies more than a day ahead: nobody shall use the tokens up.
    pub fn accepts(proposal: u64, now_us: u64) -> bool {
        proposal <= now_us.saturating_add(MAX_LEAD).min(MAX_TOKEN)
    }

    /// The token of a first hold: above every token before it, and at least `floor`.
    pub fn next(&mut self, floor: u64) -> Result<u64, TokensExhausted> {
        let token = self.last.saturating_add(1).max(floor);
        if token > MAX_TOKEN {
            return Err(TokensExhausted);
        }
        self.last = token;
        Ok(token)
    }

    /// The last token given or seen.
    pub fn last(&self) -> u64 {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_seed_in_the_past_changes_nothing() {
        let mut counter = TokenCounter::default();
        counter.seed(1_000);
        counter.seed(10);
        assert_eq!(counter.next(0), Ok(1_001));
    }

    #[test]
    fn an_incredible_token_cannot_use_the_counter_up() {
        let mut counter = TokenCounter::default();
        counter.seed(1_000);
        counter.observe(MAX_TOKEN);
        assert_eq!(counter.next(0), Ok(1_001));
    }

    #[test]
    fn the_last_token_is_given_and_none_after_it() {
        let mut counter = TokenCounter::default();
        assert_eq!(counter.next(MAX_TOKEN), Ok(MAX_TOKEN));
        assert_eq!(counter.next(0), Err(TokensExhausted));
        assert_eq!(counter.last(), MAX_TOKEN);
    }

    #[test]
    fn a_proposal_may_lead_by_a_day_and_no_more() {
        assert!(TokenCounter::accepts(MAX_LEAD + 5, 5));
        assert!(!TokenCounter::accepts(MAX_LEAD + 6, 5));
        assert!(!TokenCounter::accepts(MAX_TOKEN + 1, u64::MAX));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Seed(u64),
        Observe(u64),
        Next(u64),
    }

    proptest! {
        #[test]
        fn tokens_strictly_grow_and_reach_what_was_asked(steps in prop::collection::vec(prop_oneof![
            (0..1_u64 << 51).prop_map(Step::Seed),
            any::<u64>().prop_map(Step::Observe),
            (0..1_u64 << 51).prop_map(Step::Next),
        ], 1..100)) {
            let mut counter = TokenCounter::default();
            let (mut given, mut seen) = (0, 0);
            for step in steps {
                match step {
                    Step::Seed(now) => { counter.seed(now); seen = seen.max(now); }
                    Step::Observe(token) => {
                        counter.observe(token);
                        if token <= MAX_CREDIBLE { seen = seen.max(token); }
                    }
                    Step::Next(floor) => {
                        let token = counter.next(floor).expect("far from exhausted");
                        prop_assert!(token > given && token > seen && token >= floor);
                        given = token;
                    }
                }
            }
        }
    }
}

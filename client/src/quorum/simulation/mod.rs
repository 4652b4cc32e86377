//! The state machine against simulated nodes and a bad network: what must hold whatever happens.

mod node;
mod world;

use std::time::Duration;

use proptest::prelude::*;

use super::{Drift, NodeIndex, Renewal, Retry, Start, Terms, Wait};
use world::{Plan, Record, Weather, World};

/// One lock of one client's.
type Party = usize;

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn terms(nodes: usize) -> Terms {
    Terms {
        nodes,
        ttl: ms(500),
        node_limit: ms(50),
        drift: Drift::default(),
        wait: Wait::Forever,
        start: Start::Direct,
        renewal: Renewal::Watchdog,
        head: NodeIndex(0),
        least_token: None,
        retry: Retry::default(),
    }
}

const FAIR: Weather = Weather { delay: ms(2), loss: 0, crashes: None, grace: Duration::ZERO };

fn assert_safe(record: &Record) {
    assert_eq!(record.double_holds, 0, "{record:?}");
    assert!(record.tokens.is_sorted_by(|a, b| a < b), "tokens must grow: {record:?}");
    assert_eq!(record.left_behind, 0, "{record:?}");
}

#[test]
fn in_fair_weather_everybody_is_served() {
    let plan = Plan { clients: 64, turns: 20, hold: ms(3) };
    let terms = Terms { start: Start::InLine, ..terms(5) };
    let record = World::new(terms, FAIR, plan, 7).run();
    assert_safe(&record);
    assert_eq!((record.refusals, record.losses), (0, 0));
    assert_eq!(record.served, vec![20; 64]);
    let per_node_and_grant = record.requests as f64 / 5.0 / record.tokens.len() as f64;
    assert!(per_node_and_grant <= 3.2, "{per_node_and_grant} requests per node and grant");
}

fn weather(grace: Duration) -> impl Strategy<Value = Weather> {
    (1_u64..120, 0_u32..20, proptest::option::of(300_u64..2_000)).prop_map(move |(delay, loss, crashes)| {
        Weather { delay: ms(delay), loss, crashes: crashes.map(ms), grace }
    })
}

fn wait() -> impl Strategy<Value = Wait> {
    prop_oneof![Just(Wait::No), (1_u64..2_000).prop_map(|wait| Wait::For(ms(wait))), Just(Wait::Forever)]
}

fn start() -> impl Strategy<Value = Start> {
    prop_oneof![Just(Start::Direct), Just(Start::InLine)]
}

fn renewal() -> impl Strategy<Value = Renewal> {
    prop_oneof![Just(Renewal::Watchdog), Just(Renewal::Fixed)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Delays beyond the limits, lost messages, and nodes that forget: with a grace nobody ever holds what another
    /// holds, and tokens grow.
    #[test]
    fn in_bad_weather_the_lock_is_exclusive(
        nodes in 1_usize..7,
        weather in weather(ms(500)),
        wait in wait(),
        start in start(),
        renewal in renewal(),
        clients in 2_usize..6,
        hold in 1_u64..1_500,
        seed: u64,
    ) {
        let terms = Terms { wait, start, renewal, ..terms(nodes) };
        let plan = Plan { clients, turns: 8, hold: ms(hold) };
        assert_safe(&World::new(terms, weather, plan, seed).run());
    }
}

/// The simulation can see what it looks for.
#[test]
fn without_grace_nodes_that_forget_let_two_hold_the_lock() {
    let weather = Weather { delay: ms(20), loss: 10, crashes: Some(ms(300)), grace: Duration::ZERO };
    let plan = Plan { clients: 4, turns: 8, hold: ms(1_000) };
    let double_holds: u32 =
        (0..200).map(|seed| World::new(terms(3), weather, plan, seed).run().double_holds).sum();
    assert!(double_holds > 0);
}

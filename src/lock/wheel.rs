//! A hierarchical timing wheel: schedules, cancels and expires in constant time, however many ids
//! it holds.
//!
//! The algorithm is scheme 7 of Varghese and Lauck, "Hashed and Hierarchical Timing Wheels" (1987),
//! with 64 slots a level: level 0 has slots of 1 ms, each further level slots 64 times as wide. An
//! id sits at the level of the highest digit (base 64) in which its time differs from the wheel's,
//! and moves down as that time comes near. The slots are doubly linked lists through one array.

use super::MonotonicMs;
use super::arena::Chunks;

const DIGIT_BITS: u32 = 6;
const SLOTS: usize = 1 << DIGIT_BITS;
const LEVELS: usize = 8;
/// 64⁸ ms, about 8,900 years after the clock's start, is as late as an id can be due.
const HORIZON: MonotonicMs = MonotonicMs((1 << (DIGIT_BITS * LEVELS as u32)) - 1);
/// No neighbour.
const NONE: u32 = u32::MAX;
/// In the place of the previous neighbour: the id is in no slot.
const APART: u32 = u32::MAX - 1;
/// When an id is due that never is.
const NEVER: MonotonicMs = MonotonicMs(u64::MAX);

/// Where an id is linked in. Ids are small integers, so the links live in an array.
#[derive(Clone, Copy, Debug)]
struct Link {
    due: MonotonicMs,
    next: u32,
    previous: u32,
}

const PARKED: Link = Link { due: NEVER, next: NONE, previous: APART };

#[derive(Debug)]
struct Level {
    heads: [u32; SLOTS],
    /// Bit `n` is set where slot `n` is not empty.
    occupied: u64,
}

/// Ids and the times at which they are due.
#[derive(Debug)]
pub struct Wheel {
    now: u64,
    scheduled: usize,
    levels: Box<[Level; LEVELS]>,
    links: Chunks<Link>,
}

impl Default for Wheel {
    fn default() -> Self {
        const EMPTY: Level = Level { heads: [NONE; SLOTS], occupied: 0 };
        Self { now: 0, scheduled: 0, levels: Box::new([EMPTY; LEVELS]), links: Chunks::default() }
    }
}

impl Wheel {
    /// An empty wheel whose own time is `now`.
    pub fn starting_at(now: MonotonicMs) -> Self {
        Self { now: now.0, ..Self::default() }
    }

    /// The wheel's own time: that of the last [`Wheel::pop_due`], or earlier.
    pub fn now(&self) -> MonotonicMs {
        MonotonicMs(self.now)
    }

    /// Makes an id known that is never due.
    pub fn park(&mut self, id: u32) {
        self.links.reach(id, PARKED);
        self.cancel(id);
        self.links[id].due = NEVER;
    }

    /// Schedules an id, anew if it was already. A time in the past is due at once.
    ///
    /// Answers when [`Wheel::pop_due`] has to be called for it next, at the latest: when it is due,
    /// or when it has to move to a finer level.
    pub fn schedule(&mut self, id: u32, due: MonotonicMs, now: MonotonicMs) -> MonotonicMs {
        self.links.reach(id, PARKED);
        self.cancel(id);
        if self.scheduled == 0 {
            self.now = self.now.max(now.0);
        }
        self.links[id].due = due.min(HORIZON);
        self.scheduled += 1;
        self.link(id)
    }

    /// Takes a known id out of the schedule, if it is there. When it was due stays known.
    fn cancel(&mut self, id: u32) {
        let link = self.links[id];
        if link.previous == APART {
            return;
        }
        if link.previous == NONE {
            let (level, slot) = self.place(link.due);
            let level = &mut self.levels[level];
            level.heads[slot] = link.next;
            if link.next == NONE {
                level.occupied &= !(1 << slot);
            }
        } else {
            self.links[link.previous].next = link.next;
        }
        if link.next != NONE {
            self.links[link.next].previous = link.previous;
        }
        self.links[id].previous = APART;
        self.scheduled -= 1;
    }

    /// Takes out one id that is due by `now`, the earliest first, or moves the wheel on to `now`.
    pub fn pop_due(&mut self, now: MonotonicMs) -> Option<u32> {
        while let Some((level, slot, start)) = self.earliest_slot() {
            if start > now.0 {
                break;
            }
            let id = self.levels[level].heads[slot];
            if level == 0 {
                self.cancel(id);
                self.now = self.now.max(start);
                return Some(id);
            }
            self.cascade(level, slot, start);
        }
        self.now = self.now.max(now.0);
        None
    }

    /// When [`Wheel::pop_due`] has to be called next, at the latest.
    pub fn next_wake(&self) -> Option<MonotonicMs> {
        if self.scheduled == 0 {
            return None;
        }
        self.earliest_slot().map(|(_, _, start)| MonotonicMs(start))
    }

    /// The time that a known id was last scheduled for, if it was not parked since.
    pub fn due(&self, id: u32) -> Option<MonotonicMs> {
        Some(self.links[id].due).filter(|due| *due != NEVER)
    }

    /// Moves the ids of a slot down, now that the wheel has come to the slot's start.
    fn cascade(&mut self, level: usize, slot: usize, start: u64) {
        let mut id = std::mem::replace(&mut self.levels[level].heads[slot], NONE);
        self.levels[level].occupied &= !(1 << slot);
        self.now = start;
        while id != NONE {
            let next = self.links[id].next;
            self.link(id);
            id = next;
        }
    }

    fn link(&mut self, id: u32) -> MonotonicMs {
        let (level, slot) = self.place(self.links[id].due);
        let start = self.slot_start(level, slot);
        let level = &mut self.levels[level];
        let next = std::mem::replace(&mut level.heads[slot], id);
        level.occupied |= 1 << slot;
        let link = &mut self.links[id];
        (link.next, link.previous) = (next, NONE);
        if next != NONE {
            self.links[next].previous = id;
        }
        MonotonicMs(start)
    }

    /// The level and slot of a time, seen from the wheel's own.
    ///
    /// This does not change between linking and unlinking: while an id waits in a slot of level n > 0,
    /// the wheel's time keeps the digits above n and stays below the slot's start, where it cascades;
    /// and whoever is overdue sits in the slot of the wheel's present millisecond.
    fn place(&self, due: MonotonicMs) -> (usize, usize) {
        let due = due.max(MonotonicMs(self.now)).0;
        let highest_bit = 63 - ((due ^ self.now) | 1).leading_zeros();
        let level = highest_bit / DIGIT_BITS;
        let slot = (due >> (level * DIGIT_BITS)) as usize % SLOTS;
        (level as usize, slot)
    }

    /// The time at which a slot begins: the wheel's digits above the level, then the slot's.
    fn slot_start(&self, level: usize, slot: usize) -> u64 {
        let shift = level as u32 * DIGIT_BITS;
        let above = self.now >> (shift + DIGIT_BITS) << (shift + DIGIT_BITS);
        above | (slot as u64) << shift
    }

    fn earliest_slot(&self) -> Option<(usize, usize, u64)> {
        let (level, found) = self.levels.iter().enumerate().find(|(_, level)| level.occupied != 0)?;
        // A finer level only holds times of the present slot of the coarser one, so it comes first;
        // and no occupied slot lies behind the wheel's time.
        let slot = found.occupied.trailing_zeros() as usize;
        Some((level, slot, self.slot_start(level, slot)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Debug)]
    enum Step {
        Schedule(u32, u64),
        Park(u32),
        Advance(u64),
    }

    fn any_delay() -> impl Strategy<Value = u64> {
        prop_oneof![0..70_u64, 0..5_000_u64, 0..1_000_000_u64, 0..1_u64 << 40]
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..40_u32, any_delay()).prop_map(|(id, delay)| Step::Schedule(id, delay)),
            (0..40_u32).prop_map(Step::Park),
            any_delay().prop_map(Step::Advance),
        ]
    }

    proptest! {
        #[test]
        fn each_id_comes_out_when_due_and_never_before(
            start in 0..1_u64 << 30, steps in prop::collection::vec(any_step(), 1..200),
        ) {
            let mut wheel = Wheel::default();
            let mut model = BTreeMap::new();
            let mut now = start;
            for step in steps {
                match step {
                    Step::Schedule(id, delay) => {
                        let wake = wheel.schedule(id, MonotonicMs(now + delay), MonotonicMs(now));
                        model.insert(id, now + delay);
                        prop_assert!(wake.0 <= now + delay);
                        prop_assert_eq!(wheel.due(id), Some(MonotonicMs(now + delay)));
                    }
                    Step::Park(id) => {
                        wheel.park(id);
                        model.remove(&id);
                        prop_assert_eq!(wheel.due(id), None);
                    }
                    Step::Advance(by) => {
                        now += by;
                        let mut last = 0;
                        while let Some(id) = wheel.pop_due(MonotonicMs(now)) {
                            let due = model.remove(&id).expect("only what was scheduled");
                            prop_assert!(due <= now && due >= last.min(due));
                            last = due;
                        }
                        prop_assert!(model.values().all(|due| *due > now));
                    }
                }
                prop_assert_eq!(wheel.next_wake().is_some(), !model.is_empty());
                if let (Some(wake), Some(first)) = (wheel.next_wake(), model.values().min()) {
                    prop_assert!(wake.0 <= *first);
                }
            }
        }
    }

    #[test]
    fn a_wake_up_per_level_suffices_for_a_distant_time() {
        let mut wheel = Wheel::default();
        let due = MonotonicMs(123_456_789);
        wheel.schedule(0, due, MonotonicMs(1));
        let mut wakes = 0;
        while let Some(wake) = wheel.next_wake() {
            wakes += 1;
            if wheel.pop_due(wake).is_some() {
                assert_eq!(wake, due);
            }
        }
        assert!(wakes <= LEVELS, "{wakes} wake-ups");
    }
}

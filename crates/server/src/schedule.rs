//! Whose turn it is: classes in their order, connections of a class one after the other.

use std::collections::VecDeque;

use forebay_protocol::Class;

use crate::limits::CLASS_WORK_BYTES;

/// All classes, the first first.
pub(crate) const CLASSES: [Class; 4] = [Class::Readout, Class::Filter, Class::Mover, Class::Monitor];

/// The place of a class in [`CLASS_WORK_BYTES`] and in counts by class.
pub(crate) fn class_place(class: Class) -> usize {
    usize::from(class.code()) - 1
}

/// Connections that have something to do, by class.
pub(crate) struct Schedule {
    queues: [VecDeque<u64>; 4],
    /// Bytes of work that are left to each class in this turn.
    left: [usize; 4],
}

impl Schedule {
    pub(crate) fn new() -> Self {
        Schedule { queues: Default::default(), left: CLASS_WORK_BYTES }
    }

    /// A new turn: each class has its share again.
    pub(crate) fn begin_turn(&mut self) {
        self.left = CLASS_WORK_BYTES;
    }

    /// `id` goes behind those that wait already.
    pub(crate) fn push(&mut self, class: Class, id: u64) {
        self.queues[class_place(class)].push_back(id);
    }

    /// `id` was first once and comes first again.
    pub(crate) fn push_front(&mut self, class: Class, id: u64) {
        self.queues[class_place(class)].push_front(id);
    }

    /// What is left to a class in this turn.
    pub(crate) fn left(&self, class: Class) -> usize {
        self.left[class_place(class)]
    }

    /// The next connection: of the first class that has one and something left of its share of this turn.
    pub(crate) fn pop(&mut self) -> Option<u64> {
        let place = (0..4).find(|place| !self.queues[*place].is_empty() && self.left[*place] > 0)?;
        self.queues[place].pop_front()
    }

    /// A connection of `class` did so much.
    pub(crate) fn worked(&mut self, class: Class, bytes: usize) {
        let left = &mut self.left[class_place(class)];
        *left = left.saturating_sub(bytes);
    }

    /// Whether someone waits, for this turn or the next.
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.iter().all(VecDeque::is_empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn higher_classes_come_first_and_lower_ones_get_their_share() {
        let mut schedule = Schedule::new();
        for id in 0..3 {
            schedule.push(Class::Monitor, 30 + id);
            schedule.push(Class::Readout, id);
            schedule.push(Class::Filter, 10 + id);
        }
        let mut order = Vec::new();
        while let Some(id) = schedule.pop() {
            order.push(id);
            let class = if id >= 30 {
                Class::Monitor
            } else if id >= 10 {
                Class::Filter
            } else {
                Class::Readout
            };
            schedule.worked(class, 1 << 20);
            if class == Class::Readout {
                schedule.push(class, id);
            }
        }
        // Writers without end use up their 4 MiB; the others have their turn all the same.
        assert_eq!(order, [0, 1, 2, 0, 10, 30]);
        schedule.begin_turn();
        assert_eq!(schedule.pop(), Some(1));
    }
}

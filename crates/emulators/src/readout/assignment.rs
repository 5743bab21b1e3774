//! Which writer owns which source.

use std::collections::HashMap;

use forebay_rawdata::Piece;
use forebay_types::SourceId;

/// Sources and their writers. Each source keeps its writer; a new one goes to the writer that has the
/// fewest bytes, the largest of an event first.
pub(super) struct Assignment {
    bytes: Vec<u64>,
    writers: HashMap<SourceId, usize>,
}

impl Assignment {
    pub(super) fn new(writers: usize) -> Assignment {
        assert!(writers > 0, "there is a writer");
        Assignment { bytes: vec![0; writers], writers: HashMap::new() }
    }

    /// The writer of each piece of an event, in their order.
    pub(super) fn assign(&mut self, pieces: &[Piece]) -> Vec<usize> {
        let mut new: Vec<&Piece> = pieces.iter().filter(|piece| !self.writers.contains_key(&piece.source)).collect();
        new.sort_by_key(|piece| (std::cmp::Reverse(piece.bytes.len()), piece.source));
        for piece in new {
            let least = (0..self.bytes.len()).min_by_key(|&writer| self.bytes[writer]).expect("there is a writer");
            self.bytes[least] += (piece.bytes.len() as u64).max(1);
            self.writers.insert(piece.source, least);
        }
        pieces.iter().map(|piece| self.writers[&piece.source]).collect()
    }
}

#[cfg(test)]
mod tests {
    use forebay_rawdata::{Format, Generator, split};
    use forebay_types::RunId;

    use super::*;

    #[test]
    fn a_source_keeps_its_writer_and_the_bytes_are_balanced() {
        for format in Format::ALL {
            let mut generator = Generator::new(format, 5, RunId(1));
            let mut assignment = Assignment::new(3);
            let mut owners: HashMap<SourceId, usize> = HashMap::new();
            let mut per_source: HashMap<SourceId, usize> = HashMap::new();
            let mut bytes = [0usize; 3];
            for _ in 0..20 {
                let pieces = split(&generator.next_event()).expect("a good event");
                for (piece, writer) in pieces.iter().zip(assignment.assign(&pieces)) {
                    assert_eq!(*owners.entry(piece.source).or_insert(writer), writer, "source {}", piece.source);
                    bytes[writer] += piece.bytes.len();
                    *per_source.entry(piece.source).or_default() += piece.bytes.len();
                }
            }
            // One source can be larger than all others together.
            let largest = per_source.values().max().expect("sources");
            let even = bytes.iter().sum::<usize>() / bytes.len();
            let most = bytes.iter().max().expect("three writers");
            assert!(*most < even.max(*largest) * 5 / 4, "{format}: {bytes:?}, the largest source {largest}");
            assert!(bytes.iter().all(|bytes| *bytes > 0), "{format}: {bytes:?}");
        }
    }

    #[test]
    fn more_writers_than_sources_are_no_problem() {
        let mut assignment = Assignment::new(8);
        let pieces = [Piece { source: SourceId::EVENT_FRAME, bytes: vec![0; 4] }];
        assert_eq!(assignment.assign(&pieces), [0]);
        assert_eq!(assignment.assign(&[]), [0usize; 0]);
    }
}

//! Following the flushes of a segment, one after the other.

use forebay_format::{FlushHeader, TableEntry};
use forebay_types::limits::BLOCK_BYTES;
use forebay_types::{ReadOutcome, WallTime, crc32c};

use super::{Recovery, TornRecord, decode_table};
use crate::hidden::Hidden;
use crate::planted::{Planted, planted};
use crate::read::{Reader, RowsError, agreed, inline_table, votes};
use crate::segments::FlushSpan;
use crate::survey::{FlushFate, FlushFound};

/// What following a segment's flushes gave.
#[derive(Default)]
pub(super) struct Walked {
    /// Flushes that stay where they are, with their tables.
    pub(super) flushes: Vec<(FlushSpan, Vec<u8>)>,
    pub(super) torn: Vec<TornRecord>,
    /// A flush that does not stay was met: none after it does, unless it is known to be durable.
    pub(super) torn_on: bool,
    /// Flushes that need drives that do not answer: perhaps acknowledged, and acknowledged.
    pub(super) possibly_lost: u64,
    pub(super) unavailable: u64,
    pub(super) lost: u64,
    /// Of these, flushes of which no drive that answers holds a header.
    pub(super) without_header: u64,
    /// What becomes of each flush that was met.
    pub(super) fates: Vec<FlushFound>,
    /// Flushes that were acknowledged and cannot be read are below this number; 0: none is missing.
    pub(super) misses_below: u32,
    /// What they may hold.
    pub(super) hidden: Hidden,
    /// When the last of them was written.
    pub(super) written: WallTime,
}

/// The header of a flush that was found.
struct FoundHeader {
    header: FlushHeader,
    /// On how many drives it is.
    votes: usize,
    /// The table that lies in it. It is taken when the header is: of a torn flush a single drive may have it, which may read wrong the next time.
    table: Option<Vec<u8>>,
}

impl FoundHeader {
    async fn take_table(&mut self, reader: &Reader, span: FlushSpan) -> Option<Vec<u8>> {
        match self.table.take() {
            Some(table) => Some(table),
            None => reader.flush_table(span, &self.header).await,
        }
    }
}

impl Walked {
    /// Flushes that were acknowledged and of which no drive that answers holds a header any more.
    fn misses_headers(&mut self, found: &[(FlushSpan, FoundHeader)], known_durable: u32, all_answer: bool) {
        let here = found.iter().filter(|(span, ..)| span.flush < known_durable).count();
        self.without_header = u64::from(known_durable).saturating_sub(here as u64);
        if self.without_header > 0 {
            let (count, outcome) = match all_answer {
                true => (&mut self.lost, ReadOutcome::Lost),
                false => (&mut self.unavailable, ReadOutcome::Unavailable),
            };
            *count += self.without_header;
            self.hidden.add_any(outcome);
            self.misses_below = known_durable;
        }
    }

    /// Notes what a flush may hold that was acknowledged and cannot be read.
    fn misses_flush(&mut self, header: &FlushHeader, known_durable: u32, durable: bool, fate: FlushFate) {
        let outcome = match fate {
            FlushFate::Lost => ReadOutcome::Lost,
            FlushFate::Unavailable => ReadOutcome::Unavailable,
            FlushFate::Stays | FlushFate::Torn | FlushFate::Discarded => return,
        };
        if durable {
            self.hidden.add(outcome, header);
            self.misses_below = known_durable;
        }
    }
}

impl Recovery {
    /// Follows the flushes of a segment from its start: `limit` of them, or as many as there are. The first `durable` are known to be.
    pub(super) async fn walk(&self, reader: &Reader, limit: Option<u32>, durable: u32) -> Walked {
        let mut walked = Walked::default();
        let mut headers: Vec<(FlushSpan, FoundHeader)> = Vec::new();
        let (mut offset, mut position, mut flush, mut known_durable) = (0, 0, 0, durable);
        let geometry = &self.config.geometry;
        while limit.is_none_or(|limit| flush < limit) && offset + (BLOCK_BYTES as u64) < geometry.slot_bytes {
            let found = match self.flush_header(reader, flush, offset).await {
                Some(found) => Some((offset, found)),
                // Acknowledged, and its headers are gone: what is behind it may be there.
                None if flush < known_durable && !planted(Planted::WalkEndsAtGap) => {
                    self.next_header(reader, flush, offset).await
                }
                None => None,
            };
            let Some((at, found)) = found else { break };
            let header = &found.header;
            // `Reader::headers` saw to it that the flush lies in its slot.
            let end = header.units_offset_bytes + header.geometry().shard_bytes();
            let span = FlushSpan {
                flush: header.flush,
                offset_bytes: at,
                header_bytes: header.header_bytes,
                record_count: header.record_count,
                position,
                data_bytes: header.data_bytes,
                first_sequence: header.first_sequence,
            };
            known_durable = known_durable.max(header.durable_flushes);
            walked.written = header.written;
            (offset, position, flush) = (end, position + span.positions(), header.flush + 1);
            headers.push((span, found));
        }
        let known_durable = limit.unwrap_or(known_durable);
        let all_answer = reader.segment.shards.iter().all(|shard| shard.answers);
        walked.misses_headers(&headers, known_durable, all_answer);
        for (span, mut found) in headers {
            let durable = span.flush < known_durable;
            let fate = self.judge(reader, span, &mut found, durable, &mut walked).await;
            walked.misses_flush(&found.header, known_durable, durable, fate);
            walked.fates.push(FlushFound::new(&found.header, span.offset_bytes, durable, fate));
        }
        walked
    }

    /// The next header of the segment behind one that is gone, block by block: nothing says how long what is missing was.
    async fn next_header(&self, reader: &Reader, flush: u32, offset: u64) -> Option<(u64, FoundHeader)> {
        let mut at = offset + BLOCK_BYTES as u64;
        while at + (BLOCK_BYTES as u64) < self.config.geometry.slot_bytes {
            for number in reader.flush_numbers(at).await.into_iter().filter(|number| *number > flush) {
                if let Some(found) = self.flush_header(reader, number, at).await {
                    return Some((at, found));
                }
            }
            at += BLOCK_BYTES as u64;
        }
        None
    }

    /// The header of a flush. The first block of each says how long it is.
    async fn flush_header(&self, reader: &Reader, flush: u32, offset: u64) -> Option<FoundHeader> {
        let room = self.config.geometry.slot_bytes.saturating_sub(offset);
        let mut lengths: Vec<usize> = reader.header_lengths(offset).await;
        lengths.retain(|bytes| *bytes as u64 <= room);
        lengths.sort_unstable();
        lengths.dedup();
        for bytes in lengths {
            let headers = reader.headers(Some(flush), offset, bytes).await;
            if let Some(header) = agreed(&headers) {
                let (votes, table) = (votes(&headers, header.digest), inline_table(&headers, header));
                return Some(FoundHeader { header: header.clone(), votes, table });
            }
        }
        None
    }

    /// Decides what becomes of a flush of a segment that was not closed.
    async fn judge(
        &self,
        reader: &Reader,
        span: FlushSpan,
        found: &mut FoundHeader,
        durable: bool,
        walked: &mut Walked,
    ) -> FlushFate {
        let durable = durable && !planted(Planted::DamageDiscarded);
        if durable && let Some(table) = found.take_table(reader, span).await {
            walked.flushes.push((span, table));
            return FlushFate::Stays;
        }
        match reader.rows(&found.header, 0..found.header.rows).await {
            Ok(rows) => {
                let table = match found.header.has_inline_table() {
                    true => found.take_table(reader, span).await,
                    false => table_in(&rows.data, &found.header),
                };
                let Some(table) = table else {
                    walked.torn_on |= !durable;
                    walked.lost += 1;
                    return FlushFate::Lost;
                };
                let shards = reader.segment.shards.len();
                let whole = found.votes == shards && rows.whole_shards == shards;
                let stays = whole && !walked.torn_on || durable || planted(Planted::TornStays);
                // What stays is the segment's beginning, so that a checkpoint can say how much that is.
                walked.torn_on |= !stays;
                // Where nothing can be written again, it is read where it is.
                if stays || self.config.read_only {
                    walked.flushes.push((span, table));
                } else if !planted(Planted::TornDropped) {
                    let records = records_of(span.first_sequence, &table, &rows.data);
                    if records.len() < span.record_count as usize {
                        walked.lost += 1;
                        walked.hidden.add(ReadOutcome::Lost, &found.header);
                    }
                    walked.torn.extend(records);
                }
                if stays { FlushFate::Stays } else { FlushFate::Torn }
            }
            Err(RowsError::Lost) if durable => {
                walked.lost += 1;
                FlushFate::Lost
            }
            Err(RowsError::Unavailable { silent }) => {
                walked.torn_on |= !durable;
                if durable {
                    walked.unavailable += 1;
                } else {
                    walked.possibly_lost += 1;
                    // Drives may leave while a start that was to write looks. With no more away than parity makes up for, enough of the others would hold
                    // what was acknowledged.
                    if silent > usize::from(found.header.parity_shards) {
                        walked.hidden.add(ReadOutcome::Unavailable, &found.header);
                    }
                }
                FlushFate::Unavailable
            }
            // Too few shards were written before the stop, and every drive answers: it was never acknowledged.
            Err(RowsError::Lost) => {
                walked.torn_on = true;
                FlushFate::Discarded
            }
        }
    }
}

/// The table that lies in the data of a flush.
fn table_in(data: &[u8], header: &FlushHeader) -> Option<Vec<u8>> {
    let start = usize::try_from(header.table_offset_bytes).ok()?;
    let table = data.get(start..start.checked_add(header.table_bytes as usize)?)?;
    // A record of a kind that is not known makes the whole unreadable: better said than passed over.
    header.decode_table(table).ok().map(|_| table.to_vec())
}

/// Each record of a flush with its payload, without those whose payload has another sum: units that are right say nothing of what was put into them.
fn records_of(first_sequence: u64, table: &[u8], data: &[u8]) -> Vec<TornRecord> {
    let record = |(sequence, entry): (u64, TableEntry)| {
        let range = entry.payload_range();
        let payload = data.get(range.start as usize..range.end as usize)?.to_vec();
        let is_right = !entry.kind.has_payload() || crc32c(&payload) == entry.crc;
        is_right.then_some(TornRecord { sequence, entry, payload })
    };
    (first_sequence..).zip(decode_table(table)).filter_map(record).collect()
}

#[cfg(test)]
mod tests {
    use forebay_format::{RecordKind, TABLE_ENTRY_BYTES};
    use forebay_types::{EventId, RunId, SourceId};

    use super::*;
    use crate::segments::POSITION_BYTES;

    #[test]
    fn a_record_whose_payload_is_not_what_its_table_says_is_not_written_again() {
        let entry = |kind, source, offset_units, crc| TableEntry {
            kind,
            flags: 0,
            expected: 2,
            run: RunId(1),
            event: EventId(1),
            source: SourceId(source),
            offset_units,
            bytes: 3,
            crc,
        };
        let mut data = vec![0; 2 * POSITION_BYTES as usize];
        data[..3].copy_from_slice(b"abc");
        data[POSITION_BYTES as usize..][..3].copy_from_slice(b"def");
        let sums = [crc32c(b"abc"), crc32c(b"dex")];
        let mut table = Vec::new();
        for (source, crc) in sums.into_iter().enumerate() {
            let mut bytes = [0; TABLE_ENTRY_BYTES];
            entry(RecordKind::Fragment, source as u32, source as u32, crc).encode_into(&mut bytes);
            table.extend(bytes);
        }
        let torn = records_of(7, &table, &data);
        assert_eq!(torn.iter().map(|torn| (torn.sequence, &torn.payload[..])).collect::<Vec<_>>(), [(7, &b"abc"[..])]);
    }
}

//! Erasure coding of rows: `k` data units and `m` parity units, any `k` of which give back the rest.
//!
//! Reed-Solomon over GF(2^8) (polynomial 0x11d) with the matrices of ISA-L's `gf_gen_cauchy1_matrix`:
//! every square part of them inverts, so every loss of at most `m` units can be mended. What is
//! computed here lies on drives for as long as the data live, so it may never change; `tests/isal.rs`
//! compares it with the distribution's ISA-L on every pattern of loss up to 10+4.
//!
//! The arithmetic is that of `rusty_erasure`. It was chosen because it was measured byte-identical to
//! ISA-L 2.30 and 1.1 to 1.5 times as fast on a machine with AVX2 (5+1 and 8+2, units of 2 KiB to
//! 1 MiB), and needs neither C nor an assembler to build. It is young: the version is pinned, nothing
//! else of Forebay names it, and ISA-L stays in the tests as its oracle.
//!
//! This crate does no I/O, keeps no buffers and knows nothing of drives. It does not detect damage: a
//! unit that is handed over as present is taken to be right (the format's CRCs answer for that).

use forebay_types::limits::SHARDS_MAX;
use rusty_erasure::{Coder, Matrix};

/// Encodes and reconstructs rows of one width. Cheap to keep, worth keeping: the tables are made once.
#[derive(Clone, Debug)]
pub struct Codec {
    data: usize,
    parity: usize,
    /// None when there is no parity.
    coder: Option<Coder>,
}

impl Codec {
    /// A codec for `data` + `parity` units in a row. Without parity, encoding does nothing and nothing
    /// that is missing can be reconstructed.
    ///
    /// # Errors
    /// [`CodecError::Width`] when `data` is 0 or the row is wider than [`SHARDS_MAX`].
    pub fn new(data: u8, parity: u8) -> Result<Codec, CodecError> {
        let width_error = CodecError::Width { data, parity };
        let (data, parity) = (usize::from(data), usize::from(parity));
        if data == 0 || data + parity > SHARDS_MAX {
            return Err(width_error);
        }
        let coder = match parity {
            0 => None,
            _ => Some(Matrix::cauchy(data, parity).and_then(rusty_erasure::coder).map_err(|_| width_error)?),
        };
        Ok(Codec { data, parity, coder })
    }

    /// Data units in a row.
    pub fn data_shards(&self) -> usize {
        self.data
    }

    /// Parity units in a row.
    pub fn parity_shards(&self) -> usize {
        self.parity
    }

    /// Computes the parity of one row into `parity`, overwriting it.
    ///
    /// # Panics
    /// When the number of units is not the codec's or their lengths differ.
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        assert_eq!(data.len(), self.data, "data units of a row of {}+{}", self.data, self.parity);
        assert_eq!(parity.len(), self.parity, "parity units of a row of {}+{}", self.data, self.parity);
        let unit_bytes = data[0].len();
        assert!(data.iter().all(|unit| unit.len() == unit_bytes), "data units of one row have one length");
        assert!(parity.iter().all(|unit| unit.len() == unit_bytes), "parity units are as long as data units");
        if let Some(coder) = &self.coder {
            coder.encode(data, parity).expect("counts and lengths were asserted");
        }
    }

    /// Computes the units `missing` of one row into `into` from any `k` units of `present`.
    ///
    /// `present` holds the whole row, data units first, `None` for what is not there. `missing` may
    /// name data and parity units alike; `into` has one buffer for each, in the same order.
    ///
    /// # Errors
    /// [`CodecError::TooFewShards`] when fewer than `k` units are present; `into` is then untouched.
    ///
    /// # Panics
    /// When the number of units is not the codec's, `missing` and `into` differ in number, an index
    /// lies outside the row, or lengths differ.
    pub fn reconstruct(
        &self,
        present: &[Option<&[u8]>],
        missing: &[usize],
        into: &mut [&mut [u8]],
    ) -> Result<(), CodecError> {
        let width = self.data + self.parity;
        assert_eq!(present.len(), width, "units of a row of {}+{}", self.data, self.parity);
        assert_eq!(missing.len(), into.len(), "one buffer for each missing unit");
        assert!(missing.iter().all(|&shard| shard < width), "units {missing:?} of a row of {width}");
        let there = present.iter().flatten().count();
        if there < self.data {
            return Err(CodecError::TooFewShards { present: there, needed: self.data });
        }
        let Some(unit_bytes) = into.first().map(|unit| unit.len()) else { return Ok(()) };
        assert!(into.iter().all(|unit| unit.len() == unit_bytes), "units of one row have one length");
        assert!(present.iter().flatten().all(|unit| unit.len() == unit_bytes), "units of one row have one length");
        match &self.coder {
            Some(coder) => coder.recover(present, missing, into).expect("counts, lengths and presence were checked"),
            // All k units are there, so what is "missing" is too.
            None => {
                for (&shard, unit) in missing.iter().zip(into) {
                    unit.copy_from_slice(present[shard].expect("all units were counted"));
                }
            }
        }
        Ok(())
    }
}

/// Why a row cannot be encoded or reconstructed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// No row has this width.
    #[error(
        "a row of {data} data and {parity} parity units is not possible: take at least 1 data unit and at most {} \
         units together",
        SHARDS_MAX
    )]
    Width {
        /// Data units.
        data: u8,
        /// Parity units.
        parity: u8,
    },
    /// Too few units of the row are there to compute the others.
    #[error(
        "only {present} units of the row can be read and {needed} are needed: bring back a drive that holds another one"
    )]
    TooFewShards {
        /// Units that are there.
        present: usize,
        /// Units that are needed: as many as the row has data units.
        needed: usize,
    },
}

//! The same bytes as the distribution's ISA-L, which stands for every other program that may one day
//! have to read the drives.

use std::ffi::{c_int, c_uchar};

use forebay_erasure::Codec;
use libloading::{Library, Symbol};

type GenerateMatrix = unsafe extern "C" fn(*mut c_uchar, c_int, c_int);
type InitTables = unsafe extern "C" fn(c_int, c_int, *const c_uchar, *mut c_uchar);
type EncodeData = unsafe extern "C" fn(c_int, c_int, c_int, *const c_uchar, *const *const c_uchar, *const *mut c_uchar);

/// ISA-L, loaded when the test runs, so that building needs no C library.
struct IsaL(Library);

impl IsaL {
    /// `None`, with a line that says so, when it is not installed; a failure in CI, where it must be.
    fn load() -> Option<IsaL> {
        // SAFETY: loading runs the library's initialisers; libisal's do nothing but choose functions by
        // the kind of CPU.
        match unsafe { Library::new("libisal.so.2") } {
            Ok(library) => Some(IsaL(library)),
            Err(error) => {
                assert!(std::env::var("CI").as_deref() != Ok("true"), "CI must have libisal2: {error}");
                println!("skipped: needs libisal2");
                None
            }
        }
    }

    /// The rows of `gf_gen_cauchy1_matrix` below the identity, expanded to tables by `ec_init_tables`.
    fn tables(&self, data: usize, parity: usize) -> Vec<u8> {
        let mut matrix = vec![0; (data + parity) * data];
        let mut tables = vec![0; 32 * data * parity];
        // SAFETY: the types are those of isa-l/erasure_code.h. The matrix has (k+m)*k bytes, the rows
        // from k*k on are m*k, and the tables have 32 bytes for each of those, as the header asks.
        unsafe {
            let generate: Symbol<'_, GenerateMatrix> = self.0.get(b"gf_gen_cauchy1_matrix").expect("a symbol of ISA-L");
            let init: Symbol<'_, InitTables> = self.0.get(b"ec_init_tables").expect("a symbol of ISA-L");
            generate(matrix.as_mut_ptr(), (data + parity) as c_int, data as c_int);
            init(data as c_int, parity as c_int, matrix[data * data..].as_ptr(), tables.as_mut_ptr());
        }
        tables
    }

    fn encode(&self, data: &[Vec<u8>], parity: usize) -> Vec<Vec<u8>> {
        let unit_bytes = data[0].len();
        assert!(data.iter().all(|unit| unit.len() == unit_bytes));
        let tables = self.tables(data.len(), parity);
        let mut units = vec![vec![0; unit_bytes]; parity];
        let from: Vec<*const u8> = data.iter().map(|unit| unit.as_ptr()).collect();
        let into: Vec<*mut u8> = units.iter_mut().map(|unit| unit.as_mut_ptr()).collect();
        // SAFETY: the type is that of isa-l/erasure_code.h; k sources and m destinations of unit_bytes
        // each are valid for the call, and the tables were made for k and m.
        unsafe {
            let encode: Symbol<'_, EncodeData> = self.0.get(b"ec_encode_data").expect("a symbol of ISA-L");
            let (data, parity) = (data.len() as c_int, parity as c_int);
            encode(unit_bytes as c_int, data, parity, tables.as_ptr(), from.as_ptr(), into.as_ptr());
        }
        units
    }
}

/// Bytes of a generator that is written here, so that a failure can be made again anywhere.
fn noise(units: usize, unit_bytes: usize, mut state: u64) -> Vec<Vec<u8>> {
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..units).map(|_| (0..unit_bytes).map(|_| next()).collect()).collect()
}

#[test]
fn parity_is_that_of_isa_l() {
    let Some(isal) = IsaL::load() else { return };
    for data in 1..=10u8 {
        for parity in 1..=4u8 {
            let codec = Codec::new(data, parity).expect("a possible width");
            for unit_bytes in [1, 63, 4096, 32_768] {
                let units = noise(usize::from(data), unit_bytes, u64::from(data) << 8 | u64::from(parity));
                let expected = isal.encode(&units, usize::from(parity));
                let mut found = vec![vec![0xA5; unit_bytes]; usize::from(parity)];
                let refs: Vec<&[u8]> = units.iter().map(Vec::as_slice).collect();
                codec.encode(&refs, &mut found.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
                assert!(found == expected, "{data}+{parity}, units of {unit_bytes} bytes");
            }
        }
    }
}

#[test]
fn what_isa_l_encoded_is_reconstructed_after_every_loss() {
    let Some(isal) = IsaL::load() else { return };
    let mut mended = 0;
    for data in 1..=10usize {
        for parity in 1..=4usize {
            let codec = Codec::new(data as u8, parity as u8).expect("a possible width");
            let mut units = noise(data, 95, (data << 8 | parity) as u64);
            let encoded = isal.encode(&units, parity);
            units.extend(encoded);
            for lost in (0..1u32 << units.len()).filter(|lost| (1..=parity as u32).contains(&lost.count_ones())) {
                let is_lost = |shard: usize| lost & (1 << shard) != 0;
                let missing: Vec<usize> = (0..units.len()).filter(|&shard| is_lost(shard)).collect();
                let present: Vec<Option<&[u8]>> =
                    units.iter().enumerate().map(|(shard, unit)| (!is_lost(shard)).then_some(&unit[..])).collect();
                let mut into = vec![vec![0; 95]; missing.len()];
                let mut buffers: Vec<&mut [u8]> = into.iter_mut().map(Vec::as_mut_slice).collect();
                codec.reconstruct(&present, &missing, &mut buffers).expect("enough units are there");
                for (&shard, unit) in missing.iter().zip(&into) {
                    assert!(*unit == units[shard], "{data}+{parity}, {lost:#x} lost, unit {shard}");
                }
                mended += 1;
            }
        }
    }
    assert_eq!(mended, 6_772, "patterns of loss");
}

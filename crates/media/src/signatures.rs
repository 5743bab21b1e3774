//! How file systems, volume managers and file formats are recognised by their first or last bytes.
//!
//! Offsets are those of the formats' own documentation.

/// Beginnings and ends are looked at this far.
pub(crate) const SAMPLE_BYTES: usize = 1 << 20;

/// The beginning and the end of a device or file.
pub(crate) struct Sample {
    /// Its size.
    pub bytes: u64,
    /// Its first [`SAMPLE_BYTES`], or all of it.
    pub head: Vec<u8>,
    /// Its last [`SAMPLE_BYTES`], or all of it.
    pub tail: Vec<u8>,
}

impl Sample {
    /// `N` bytes at `offset`, if they lie in the beginning or in the end.
    fn at<const N: usize>(&self, offset: u64) -> Option<[u8; N]> {
        let tail_start = self.bytes - self.tail.len() as u64;
        let (part, start) = match offset.checked_sub(tail_start) {
            Some(start) if !self.in_head(offset, N) => (&self.tail, start),
            _ => (&self.head, offset),
        };
        let start = usize::try_from(start).ok()?;
        part.get(start..start.checked_add(N)?)?.try_into().ok()
    }

    fn in_head(&self, offset: u64, bytes: usize) -> bool {
        offset.checked_add(bytes as u64).is_some_and(|end| end <= self.head.len() as u64)
    }

    fn has(&self, offset: u64, magic: &[u8]) -> bool {
        let bytes = (0..magic.len() as u64).map(|at| offset.checked_add(at).and_then(|at| self.at::<1>(at)));
        bytes.eq(magic.iter().map(|&byte| Some([byte])))
    }

    fn u16(&self, offset: u64) -> Option<u16> {
        self.at(offset).map(u16::from_le_bytes)
    }

    fn u32(&self, offset: u64) -> Option<u32> {
        self.at(offset).map(u32::from_le_bytes)
    }
}

/// Bytes at a fixed place.
type Signature = (u64, &'static [u8], &'static str);

/// What takes whole devices. Looked for before partition tables, of which some of these carry the mark.
const VOLUMES: &[Signature] = &[
    (0, b"XFSB", "xfs file system"),
    (0x10040, b"_BHRfS_M", "btrfs file system"),
    (3, b"NTFS    ", "NTFS file system"),
    (3, b"EXFAT   ", "exFAT file system"),
    (82, b"FAT32   ", "FAT32 file system"),
    (54, b"FAT16   ", "FAT16 file system"),
    (54, b"FAT12   ", "FAT12 file system"),
    (0, b"LUKS\xba\xbe", "LUKS encrypted volume"),
    (0x4000, b"SKUL\xba\xbe", "LUKS encrypted volume (second header)"),
    (0, b"bluestore block device\n", "Ceph BlueStore device"),
    (1024, &[0x10, 0x20, 0xf5, 0xf2], "f2fs file system"),
    (0, b"hsqs", "squashfs file system"),
    (0x8001, b"CD001", "ISO 9660 file system"),
    (0x8000, b"JFS1", "JFS file system"),
    (0x10034, b"ReIsErFs", "ReiserFS file system"),
    (0x10034, b"ReIsEr2Fs", "ReiserFS file system"),
    (0x10034, b"ReIsEr3Fs", "ReiserFS file system"),
    (1024, b"H+", "HFS+ file system"),
    (
        4096 + 24,
        &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81],
        "bcache or bcachefs device",
    ),
];

/// What files begin with.
const FILES: &[Signature] = &[
    (0, &[0x1f, 0x8b], "gzip file"),
    (0, b"PK\x03\x04", "zip file"),
    (0, b"PK\x05\x06", "zip file"),
    (257, b"ustar", "tar archive"),
    (0, b"BZh", "bzip2 file"),
    (0, b"\xfd7zXZ\0", "xz file"),
    (0, &[0x28, 0xb5, 0x2f, 0xfd], "zstd file"),
    (0, &[0x04, 0x22, 0x4d, 0x18], "lz4 file"),
    (0, b"7z\xbc\xaf\x27\x1c", "7-zip file"),
    (0, b"\x7fELF", "ELF program or library"),
    (0, b"root\0", "ROOT file"),
    (0, b"\x89HDF\r\n\x1a\n", "HDF5 file"),
    (0, b"PAR1", "Parquet file"),
    (0, b"SQLite format 3\0", "SQLite database"),
    (0, b"QFI\xfb", "qcow2 disk image"),
    (0, b"%PDF-", "PDF file"),
    (0, b"\x89PNG\r\n\x1a\n", "PNG image"),
    (0, b"\xff\xd8\xff", "JPEG image"),
];

/// What was found, and at which byte its mark lies.
type Found = (String, u64);

/// What this is, when it is something known, and at which byte its mark lies.
pub(crate) fn recognise(sample: &Sample) -> Option<Found> {
    let fixed = |table: &[Signature]| {
        let found = table.iter().find(|(offset, magic, _)| sample.has(*offset, magic));
        found.map(|(offset, _, what)| ((*what).to_owned(), *offset))
    };
    fixed(VOLUMES)
        .or_else(|| ext(sample))
        .or_else(|| swap(sample))
        .or_else(|| raid(sample))
        .or_else(|| lvm(sample))
        .or_else(|| zfs(sample))
        .or_else(|| partitions(sample))
        .or_else(|| fixed(FILES))
        .or_else(|| is_text(&sample.head).then(|| ("text file".to_owned(), 0)))
}

/// ext2, 3 and 4 share a superblock at byte 1024 and differ in their features.
fn ext(sample: &Sample) -> Option<Found> {
    const SUPERBLOCK: u64 = 1024;
    const HAS_JOURNAL: u32 = 0x4;
    const INCOMPAT_OF_EXT4: u32 = 0x40 | 0x80 | 0x200;
    const RO_COMPAT_OF_EXT4: u32 = 0x8 | 0x10 | 0x20 | 0x40 | 0x400;
    if sample.u16(SUPERBLOCK + 56)? != 0xEF53 {
        return None;
    }
    let [compat, incompat, ro_compat] = [92, 96, 100].map(|field| sample.u32(SUPERBLOCK + field).unwrap_or(0));
    let version = if incompat & INCOMPAT_OF_EXT4 != 0 || ro_compat & RO_COMPAT_OF_EXT4 != 0 {
        "ext4"
    } else if compat & HAS_JOURNAL != 0 {
        "ext3"
    } else {
        "ext2"
    };
    Some((format!("{version} file system"), SUPERBLOCK + 56))
}

/// The mark is at the end of the first page, whatever a page was.
fn swap(sample: &Sample) -> Option<Found> {
    let marks: [&[u8]; 2] = [b"SWAPSPACE2", b"SWAP-SPACE"];
    let mut places = [4096, 8192, 16384, 32768, 65536u64].into_iter().map(|page| page - 10);
    let place = places.find(|place| marks.iter().any(|mark| sample.has(*place, mark)))?;
    Some(("swap space".to_owned(), place))
}

/// Linux software RAID: version 1.1 at the start, 1.2 after 4 KiB, 1.0 and 0.90 at the end.
fn raid(sample: &Sample) -> Option<Found> {
    const MAGIC: u32 = 0xa92b_4efc;
    let sectors = sample.bytes / 512;
    let places = [
        (Some(0), "1.1"),
        (Some(4096), "1.2"),
        (sectors.checked_sub(16).map(|start| (start & !7) * 512), "1.0"),
        ((sample.bytes & !0xffff).checked_sub(0x10000), "0.90"),
    ];
    let is_member = |place: u64| {
        sample.at::<4>(place).is_some_and(|magic| magic == MAGIC.to_le_bytes() || magic == MAGIC.to_be_bytes())
    };
    let (place, version) = places.into_iter().find(|(place, _)| place.is_some_and(is_member))?;
    Some((format!("member of a Linux software RAID (superblock {version})"), place?))
}

/// The label is in one of the first four sectors.
fn lvm(sample: &Sample) -> Option<Found> {
    let is_label = |place: &u64| sample.has(*place, b"LABELONE") && sample.has(place + 24, b"LVM2 001");
    let place = [0, 512, 1024, 1536].into_iter().find(is_label)?;
    Some(("LVM2 physical volume".to_owned(), place))
}

/// Four labels of 256 KiB, two at each end, each with a ring of überblocks in its second half.
fn zfs(sample: &Sample) -> Option<Found> {
    const LABEL: u64 = 256 << 10;
    const MAGIC: u64 = 0x00ba_b10c;
    let end = sample.bytes - sample.bytes % LABEL;
    let labels = [Some(0), Some(LABEL), end.checked_sub(2 * LABEL), end.checked_sub(LABEL)];
    let mut blocks =
        labels.into_iter().flatten().flat_map(|label| (LABEL / 2..LABEL).step_by(1024).map(move |at| label + at));
    let place = blocks.find(|place| {
        sample.at::<8>(*place).is_some_and(|magic| magic == MAGIC.to_le_bytes() || magic == MAGIC.to_be_bytes())
    })?;
    Some(("member of a ZFS pool".to_owned(), place))
}

fn partitions(sample: &Sample) -> Option<Found> {
    let backup = |sector: u64| sample.bytes.checked_sub(sector);
    let places = [Some(512), Some(4096), backup(512), backup(4096)];
    if let Some(place) = places.into_iter().flatten().find(|place| sample.has(*place, b"EFI PART")) {
        return Some(("GPT partition table".to_owned(), place));
    }
    if !sample.has(510, &[0x55, 0xaa]) {
        return None;
    }
    let entries: [[u8; 16]; 4] = [446, 462, 478, 494].map(|place| sample.at(place).unwrap_or_default());
    let is_well_formed = entries.iter().all(|entry| entry[0] & 0x7f == 0);
    let is_used = entries.iter().any(|entry| entry[4] != 0);
    let what = if is_well_formed && is_used { "MBR partition table" } else { "boot sector" };
    Some((what.to_owned(), 510))
}

/// Whether it reads as text as far as it was looked at, apart from zeros that follow.
fn is_text(head: &[u8]) -> bool {
    let looked_at = &head[..head.len().min(4096)];
    let end = looked_at.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let text = match std::str::from_utf8(&looked_at[..end]) {
        Ok(text) => text,
        // The last character may be cut off.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&looked_at[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    !text.is_empty() && text.chars().all(|c| !c.is_control() || matches!(c, '\t' | '\n' | '\r' | '\x0c' | '\x1b'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 4 << 20;

    fn with(parts: &[(u64, &[u8])]) -> Option<String> {
        found(parts).map(|(what, _)| what)
    }

    fn found(parts: &[(u64, &[u8])]) -> Option<Found> {
        let mut all = vec![0; BYTES as usize];
        for (offset, bytes) in parts {
            all[*offset as usize..*offset as usize + bytes.len()].copy_from_slice(bytes);
        }
        let tail = all[all.len() - SAMPLE_BYTES..].to_vec();
        recognise(&Sample { bytes: BYTES, head: all[..SAMPLE_BYTES].to_vec(), tail })
    }

    #[test]
    fn every_fixed_signature_is_found_at_its_place_and_not_beside_it() {
        for (offset, magic, what) in VOLUMES.iter().chain(FILES) {
            assert_eq!(found(&[(*offset, magic)]), Some(((*what).to_owned(), *offset)));
            assert_ne!(with(&[(*offset + 1, magic)]).as_deref(), Some(*what));
        }
    }

    #[test]
    fn the_versions_of_ext_are_told_apart() {
        let magic: (u64, &[u8]) = (1080, &[0x53, 0xef]);
        assert_eq!(with(&[magic]).as_deref(), Some("ext2 file system"));
        assert_eq!(with(&[magic, (1116, &[4])]).as_deref(), Some("ext3 file system"));
        assert_eq!(with(&[magic, (1116, &[4]), (1120, &[0x40])]).as_deref(), Some("ext4 file system"));
        assert_eq!(with(&[magic, (1125, &[4])]).as_deref(), Some("ext4 file system"));
    }

    #[test]
    fn members_of_arrays_and_pools_are_found_at_both_ends() {
        let raid: &[u8] = &[0xfc, 0x4e, 0x2b, 0xa9];
        for (offset, version) in [(0, "1.1"), (4096, "1.2"), (BYTES - 8192, "1.0"), (BYTES - 65536, "0.90")] {
            let what = format!("member of a Linux software RAID (superblock {version})");
            assert_eq!(found(&[(offset, raid)]), Some((what, offset)));
        }
        let uberblock: &[u8] = &[0x0c, 0xb1, 0xba, 0];
        let zfs = |place| Some(("member of a ZFS pool".to_owned(), place));
        for offset in [131_072, 131_072 + 1024, 393_216, BYTES - 131_072, BYTES - 393_216] {
            assert_eq!(found(&[(offset, uberblock)]), zfs(offset), "{offset}");
        }
        let (label, kind): (&[u8], &[u8]) = (b"LABELONE", b"LVM2 001");
        assert_eq!(found(&[(512, label), (536, kind)]), Some(("LVM2 physical volume".to_owned(), 512)));
    }

    #[test]
    fn partition_tables_and_swap_are_found() {
        for offset in [512, 4096, BYTES - 512, BYTES - 4096] {
            assert_eq!(found(&[(offset, b"EFI PART")]), Some(("GPT partition table".to_owned(), offset)));
        }
        let mark: (u64, &[u8]) = (510, &[0x55, 0xaa]);
        assert_eq!(with(&[mark, (450, &[0x83])]).as_deref(), Some("MBR partition table"));
        assert_eq!(with(&[mark]).as_deref(), Some("boot sector"));
        assert_eq!(with(&[mark, (3, b"NTFS    ")]).as_deref(), Some("NTFS file system"));
        for page in [4096, 16384, 65536] {
            assert_eq!(with(&[(page - 10, b"SWAPSPACE2")]).as_deref(), Some("swap space"));
        }
    }

    #[test]
    fn text_is_text_and_noise_is_nothing() {
        assert_eq!(with(&[(0, "run 7: déjà vu\n".as_bytes())]).as_deref(), Some("text file"));
        let long = "é".repeat(2_049);
        assert_eq!(with(&[(0, b"a"), (1, long.as_bytes())]).as_deref(), Some("text file"));
        assert_eq!(with(&[(0, &[1, 2, 3])]), None);
        assert_eq!(with(&[(0, &[0xff, 0xfe])]), None);
        assert_eq!(with(&[]), None);
    }

    #[test]
    fn nothing_is_too_small_to_look_at() {
        for bytes in 1..600 {
            let head = vec![0x11; bytes];
            let tail = head.clone();
            assert_eq!(recognise(&Sample { bytes: bytes as u64, head, tail }), None, "{bytes}");
        }
    }
}

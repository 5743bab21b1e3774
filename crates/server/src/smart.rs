//! What a drive says of its own wear, as `smartctl --json` tells it. Bytes of another program: nothing in them is trusted.

use serde::Deserialize;

/// Bytes of a data unit of NVMe: 1000 blocks of 512 bytes.
const NVME_UNIT_BYTES: u64 = 512_000;

/// The attribute of ATA drives that counts the blocks ever written.
const ATA_BLOCKS_WRITTEN: u64 = 241;

/// What a drive says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SmartReport {
    /// How much of its life is over; it may be more than 100.
    pub(crate) used_percent: Option<u8>,
    /// Bytes that were ever written to it.
    pub(crate) written_bytes: Option<u64>,
    /// How long it was powered on.
    pub(crate) power_on_hours: Option<u64>,
    /// Whether it thinks that it is well.
    pub(crate) is_well: Option<bool>,
}

/// What is looked for in the output; all else is passed over.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Output {
    logical_block_size: Option<u64>,
    smart_status: Option<Status>,
    power_on_time: Option<PowerOn>,
    nvme_smart_health_information_log: Option<NvmeLog>,
    ata_smart_attributes: Option<AtaAttributes>,
    endurance_used: Option<Endurance>,
}

#[derive(Deserialize)]
struct Status {
    passed: Option<bool>,
}

#[derive(Deserialize)]
struct PowerOn {
    hours: Option<u64>,
}

#[derive(Deserialize)]
struct NvmeLog {
    percentage_used: Option<u64>,
    data_units_written: Option<u64>,
    power_on_hours: Option<u64>,
}

#[derive(Deserialize)]
struct AtaAttributes {
    #[serde(default)]
    table: Vec<AtaAttribute>,
}

#[derive(Deserialize)]
struct AtaAttribute {
    id: Option<u64>,
    raw: Option<AtaRaw>,
}

#[derive(Deserialize)]
struct AtaRaw {
    value: Option<u64>,
}

#[derive(Deserialize)]
struct Endurance {
    current_percent: Option<u64>,
}

impl SmartReport {
    /// Reads the output of `smartctl --json --all`.
    ///
    /// # Errors
    /// Why it says nothing, in words.
    pub(crate) fn parse(output: &[u8]) -> Result<SmartReport, String> {
        let output: Output =
            serde_json::from_slice(output).map_err(|error| format!("its output is not understood: {error}"))?;
        let nvme = output.nvme_smart_health_information_log.as_ref();
        let percent =
            nvme.and_then(|log| log.percentage_used).or(output.endurance_used.and_then(|used| used.current_percent));
        let block_bytes = output.logical_block_size.unwrap_or(512);
        let ata_blocks = output.ata_smart_attributes.and_then(|attributes| {
            let written = attributes.table.into_iter().find(|attribute| attribute.id == Some(ATA_BLOCKS_WRITTEN))?;
            written.raw?.value
        });
        let written_bytes = nvme
            .and_then(|log| log.data_units_written)
            .and_then(|units| units.checked_mul(NVME_UNIT_BYTES))
            .or(ata_blocks.and_then(|blocks| blocks.checked_mul(block_bytes)));
        let report = SmartReport {
            used_percent: percent.map(|percent| u8::try_from(percent).unwrap_or(u8::MAX)),
            written_bytes,
            power_on_hours: output
                .power_on_time
                .and_then(|time| time.hours)
                .or(nvme.and_then(|log| log.power_on_hours)),
            is_well: output.smart_status.and_then(|status| status.passed),
        };
        if report == SmartReport::default() {
            return Err("it told nothing of the drive's wear; it needs the rights to ask the drive".to_owned());
        }
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NVME: &[u8] = br#"{"smartctl":{"exit_status":0},"device":{"type":"nvme"},"smart_status":{"passed":true},
        "nvme_smart_health_information_log":{"critical_warning":0,"percentage_used":7,"data_units_written":24000000,"power_on_hours":9000},
        "power_on_time":{"hours":9001}}"#;

    #[test]
    fn an_nvme_drive_tells_its_wear() {
        let report = SmartReport::parse(NVME).expect("understood");
        let wanted = SmartReport {
            used_percent: Some(7),
            written_bytes: Some(24_000_000 * 512_000),
            power_on_hours: Some(9001),
            is_well: Some(true),
        };
        assert_eq!(report, wanted);
    }

    #[test]
    fn an_ata_drive_tells_it_by_blocks() {
        let output =
            br#"{"logical_block_size":512,"power_on_time":{"hours":12},"endurance_used":{"current_percent":300},
            "ata_smart_attributes":{"table":[{"id":9,"raw":{"value":12}},{"id":241,"raw":{"value":2000}}]}}"#;
        let report = SmartReport::parse(output).expect("understood");
        assert_eq!(
            (report.used_percent, report.written_bytes, report.power_on_hours),
            (Some(255), Some(1_024_000), Some(12))
        );
    }

    proptest::proptest! {
        /// Whatever comes, it is a report or words why not; a whole answer that is cut off or changed anywhere, too.
        #[test]
        fn no_output_does_harm(
            noise in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300),
            at in 0..NVME.len(), byte in proptest::prelude::any::<u8>(),
        ) {
            let _any = SmartReport::parse(&noise);
            let mut changed = NVME.to_vec();
            changed[at] = byte;
            let _any = SmartReport::parse(&changed);
            proptest::prop_assert!(SmartReport::parse(&NVME[..at]).is_err());
        }
    }

    #[test]
    fn what_is_no_answer_is_none() {
        let no_rights = br#"{"smartctl":{"exit_status":2,"messages":[{"string":"Permission denied"}]}}"#;
        let wrong = [
            &b""[..],
            b"{",
            b"null",
            b"[]",
            b"\xff\xfe",
            br#"{"power_on_time":{"hours":-1}}"#,
            br#"{"power_on_time":"soon"}"#,
            no_rights,
            b"{}",
        ];
        for output in wrong {
            let told = SmartReport::parse(output).expect_err("no report");
            assert!(!told.is_empty());
        }
        // More than there are numbers for.
        let large =
            br#"{"nvme_smart_health_information_log":{"percentage_used":1,"data_units_written":18446744073709551615}}"#;
        assert_eq!(SmartReport::parse(large).expect("understood").written_bytes, None);
    }
}

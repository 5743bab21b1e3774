//! `forebay upgrade`: gives a stopped store the newest format version.

use std::path::PathBuf;

use clap::Args;
use forebay_store::{StoreConfig, UpgradeError, UpgradeReport, upgrade};
use forebay_types::{DriveNumber, ReadOutcome};

use crate::failure::Failure;
use crate::output::Output;
use crate::serve::open_failure;

const AFTER_HELP: &str = "\
Examples:
  forebay upgrade --dry-run /data/d0 /data/d1 /data/d2 /data/d3 /data/d4
      says of which format version the store is, and whether it can get the newest; writes nothing
  forebay upgrade /data/d0 /data/d1 /data/d2 /data/d3 /data/d4
      gives it the newest

A store keeps the format version that it was made with, whatever program serves it, so that the program before can be started again at
any time. This command ends that: programs that know only the older version refuse the store from then on, and there is no way back but
to empty it and make it anew.

Version 2: stores that have files. In them run 4294967295 is kept for the numbers of files, and fragments of it are refused. A store
that knows events of this run, stored or over, is not upgraded, nor is one that has something which cannot be read and may be of it.

The server must be stopped. Name all drives: as for a start more than half of the members are needed, and all but as many as there are
parities; those that are missing are taken out of the store. All tables are read first. Then the superblocks alone are written, and
nothing else is touched: a store that was stopped in order stays so. When the command is killed, or a drive fails, the store is of the
old version or of the new one, is served as before, and the same command can be given again.

Exit codes: 0 when the store has the newest version (with --dry-run: when it can get it); 1 when its drives are copies or two histories,
or a lane cannot be read; 2 when it cannot be upgraded, or the command is wrong; 3 when a drive is in use, too few members are there, or
something is out of reach.";

/// The options of `upgrade`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct UpgradeCommand {
    /// Only say whether it could be done: nothing is written
    #[arg(long)]
    dry_run: bool,

    /// The drives, in any order
    #[arg(value_name = "DRIVE", required = true)]
    drives: Vec<PathBuf>,
}

/// A drive is waited for so long, in milliseconds: nobody else waits here.
const DRIVE_TIMEOUT_MS: u64 = 10_000;

/// Upgrades the store.
///
/// # Errors
/// Why it was not.
pub fn run(command: &UpgradeCommand, output: &Output) -> Result<(), Failure> {
    let config =
        StoreConfig { cache_bytes: 16 << 20, drive_timeout_ms: Some(DRIVE_TIMEOUT_MS), ..StoreConfig::default() };
    let mut progress = output.progress(0, "lanes recover {spinner} {msg}");
    let mut waiting = |lane| progress.update(0, || format!("lane {lane}: reading its tables"));
    let done = upgrade(&command.drives, &config, !command.dry_run, &mut waiting);
    drop(progress);
    let report = done.map_err(failure)?;
    let numbers = |drives: &[DriveNumber]| drives.iter().map(|drive| drive.0).collect::<Vec<u16>>();
    output.object(&serde_json::json!({
        "store": report.store,
        "format_version_before": report.before,
        "format_version": if report.written { report.after } else { report.before },
        "written": report.written,
        "members": numbers(&report.members),
        "left_out": numbers(&report.left_out),
        "warnings": report.warnings,
    }));
    output.line(&describe(&report));
    report.warnings.iter().for_each(|warning| output.note(&format!("warning: {warning}")));
    Ok(())
}

fn describe(report: &UpgradeReport) -> String {
    let UpgradeReport { store, before, after, members, .. } = report;
    let drives = format!("{} drives", members.len());
    let left_out: Vec<String> = report.left_out.iter().map(|drive| drive.0.to_string()).collect();
    let left_out = match (left_out.is_empty(), report.written) {
        (true, _) => String::new(),
        (false, true) => format!("; drives {} are out of the store", left_out.join(", ")),
        (false, false) => format!("; drives {} would be taken out of the store", left_out.join(", ")),
    };
    match (report.written, before == after) {
        (true, false) => format!(
            "store {store} is of format version {after} now and has files; it was of version {before}. {drives} say so{left_out}.\n\
             Programs that know only version {before} refuse it from now on. Serve it as before"
        ),
        (true, true) => format!(
            "store {store} was of format version {after} on some drives only, as an upgrade was cut off; {drives} say so now{left_out}"
        ),
        (false, false) => format!(
            "store {store} is of format version {before}, without files, and can get version {after}: no lane knows run 4294967295. \
             {drives} would be written to{left_out}. Nothing was written"
        ),
        (false, true) => format!("store {store} is of format version {after}, the newest; nothing was written"),
    }
}

fn failure(error: UpgradeError) -> Failure {
    let words = error.to_string();
    match error {
        UpgradeError::Open(error) => open_failure(error),
        UpgradeError::Hidden { outcome: ReadOutcome::Unavailable, .. } | UpgradeError::Write(_) => {
            Failure::retry(words)
        }
        UpgradeError::KeptRun { .. } | UpgradeError::Hidden { .. } => Failure::usage(words),
        UpgradeError::Unreadable { .. } => Failure::data(words),
    }
}

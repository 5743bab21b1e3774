//! Whether an operator may change a drive, and in what words not.

use forebay_protocol::{DriveChange, ErrorCode, ErrorReply};
use forebay_store::ControlStatus;
use forebay_types::DriveNumber;

use crate::status::LaneReport;

/// The change, for the log.
pub(crate) fn words(change: &DriveChange) -> String {
    match change {
        DriveChange::Fail { force: false } => "given up".to_owned(),
        DriveChange::Fail { force: true } => "given up by force".to_owned(),
        DriveChange::Retire => "taken out of use".to_owned(),
        DriveChange::Replace { path, force: false } => format!("{path} is put in for it"),
        DriveChange::Replace { path, force: true } => format!("{path} is put in for it, whatever that holds"),
    }
}

pub(crate) fn refused(sentence: String) -> ErrorReply {
    ErrorReply { code: ErrorCode::Refused, retryable: false, sentence }
}

/// What speaks against a change before anything else is looked at.
///
/// # Errors
/// The reason, for the operator.
pub(crate) fn may_be_tried(status: &ControlStatus, drive: DriveNumber, change: &DriveChange) -> Result<(), ErrorReply> {
    if status.read_only {
        let sentence =
            "this server was started read-only and changes no drive; nothing was changed. Start it for writing first";
        return Err(ErrorReply { code: ErrorCode::ReadOnly, retryable: false, sentence: sentence.to_owned() });
    }
    // Of a drive that the store never had the store says so itself.
    let Some(found) = status.drives.iter().find(|found| found.number == drive.0) else { return Ok(()) };
    let is_read = matches!(found.state, "retired" | "out");
    let why = match change {
        DriveChange::Replace { .. } => return Ok(()),
        _ if found.state == "member" => return Ok(()),
        // It is read still, and may be given up.
        DriveChange::Fail { .. } if is_read => return Ok(()),
        DriveChange::Retire if is_read => format!(
            "drive {drive} is no member of the store; nothing was changed. It is read as long as something lives on it, and that is made anew on \
             other drives by itself, as far as there are enough of them: `forebay drive list` shows how far that is"
        ),
        DriveChange::Fail { .. } | DriveChange::Retire => {
            format!("drive {drive} is neither a member nor read any more; nothing was changed")
        }
    };
    Err(refused(format!("{why}. `forebay drive replace {drive} PATH` puts a new drive in for it")))
}

/// Whether nothing that is stored comes out of reach without a drive: every lane must say so. `told`: what they say, or which of them do
/// not answer. `may_lose_a_member`: enough drives would be left for writing.
///
/// # Errors
/// The reason, for the operator.
pub(crate) fn may_be_given_up(
    drive: DriveNumber,
    told: Result<Vec<LaneReport>, Vec<usize>>,
    may_lose_a_member: bool,
) -> Result<(), ErrorReply> {
    let unknown = |which: String| {
        refused(format!(
            "it is not known whether something that is stored needs drive {drive}: {which}; nothing was changed. Try again when `forebay status` \
             shows that every lane serves; --force gives the drive up all the same"
        ))
    };
    let reports = told.map_err(|silent| {
        let silent: Vec<String> = silent.iter().map(ToString::to_string).collect();
        unknown(format!("of the lanes, {} did not answer", silent.join(", ")))
    })?;
    if let Some(report) = reports.iter().find(|report| !report.knows_what_is_stored()) {
        return Err(unknown(format!("lane {} is {}", report.lane(), report.status.state)));
    }
    if !reports.iter().any(|report| report.needs_drive(drive)) {
        return Ok(());
    }
    let instead = match may_lose_a_member {
        true => "`forebay drive retire` takes it out of use and goes on reading it; --force gives it up all the same"
            .to_owned(),
        false => format!(
            "Nor would enough drives be left for writing. Put a new drive in first: `forebay drive replace {drive} PATH`"
        ),
    };
    Err(refused(format!(
        "something that is stored would come out of reach without drive {drive}; nothing was changed. {instead}"
    )))
}

#[cfg(test)]
mod tests {
    use forebay_engine::DriveHealth;

    use super::*;
    use crate::rates::tests::status;
    use crate::status::tests::report;

    fn lane(lane: u16, state: &'static str, failures_left: Option<u8>) -> LaneReport {
        let mut status = status(0, 0, 50);
        (status.lane, status.state, status.failures_left) = (lane, state, failures_left);
        status.drive_health = vec![DriveHealth { drive: 3, segments_alive: 7, ..DriveHealth::default() }];
        report(status)
    }

    fn sentence(told: Result<Vec<LaneReport>, Vec<usize>>, may_lose_a_member: bool) -> Option<String> {
        may_be_given_up(DriveNumber(3), told, may_lose_a_member).err().map(|error| error.sentence)
    }

    #[test]
    fn a_drive_is_given_up_only_when_every_lane_says_that_it_may_be() {
        let well = || lane(0, "serving", Some(1));
        assert_eq!(sentence(Ok(vec![well(), lane(1, "serving", None)]), true), None);
        let silent = sentence(Err(vec![1, 2]), true).expect("it is not known");
        assert!(silent.contains("of the lanes, 1, 2 did not answer; nothing was changed"), "{silent}");
        let recovers = sentence(Ok(vec![well(), lane(1, "recovering", None)]), true).expect("it is not known");
        assert!(recovers.contains("lane 1 is recovering"), "{recovers}");
        let needed = sentence(Ok(vec![well(), lane(1, "serving", Some(0))]), true).expect("it is needed");
        assert!(needed.contains("out of reach without drive 3") && needed.contains("drive retire"), "{needed}");
    }

    #[test]
    fn nothing_is_advised_that_is_refused_then() {
        let needed = sentence(Ok(vec![lane(0, "serving", Some(0))]), false).expect("it is needed");
        assert!(needed.contains("Put a new drive in first") && !needed.contains("--force"), "{needed}");
    }
}

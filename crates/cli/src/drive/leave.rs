//! `forebay drive fail` and `retire`: a drive is taken out, and what that leaves is told.

use forebay_client::{Client, DriveChange};

use super::{LOOK, change};
use crate::failure::Failure;
use crate::output::Output;
use crate::size::human_bytes;
use crate::status::report::Drive;
use crate::status::{Report, parse};

/// Lanes hear of a change within a moment; of one that does not answer it is not known.
const LOOKS_MAX: usize = 50;

/// Gives a drive up.
pub(super) fn fail(client: &mut Client, drive: u16, force: bool, output: &Output) -> Result<(), Failure> {
    change(client, drive, DriveChange::Fail { force })?;
    let left = Left::after(client, drive, |report| report.lanes.iter().any(|lane| lane.drives_read.contains(&drive)))?;
    output.object(&left.object("failed"));
    output.line(&format!(
        "drive {drive} is given up: it is neither written to nor read any more. {}. {}",
        left.held(),
        left.protection()
    ));
    Ok(())
}

/// Takes a drive out of use.
pub(super) fn retire(client: &mut Client, drive: u16, output: &Output) -> Result<(), Failure> {
    change(client, drive, DriveChange::Retire)?;
    let writes = |report: &Report| report.lanes.iter().any(|lane| lane.drives_written.contains(&drive));
    let left = Left::after(client, drive, writes)?;
    output.object(&left.object("retired"));
    output.line(&format!(
        "drive {drive} is taken out of use: nothing more is written to it. {}. {}",
        left.holds(),
        left.protection()
    ));
    Ok(())
}

/// What is left when a drive was taken out.
struct Left {
    drive: u16,
    report: Report,
}

impl Left {
    /// Looks at the server until its lanes have heard of it; `has_it`: one has not.
    fn after(client: &mut Client, drive: u16, has_it: impl Fn(&Report) -> bool) -> Result<Left, Failure> {
        let mut report: Report = parse(&client.status()?)?;
        for _ in 0..LOOKS_MAX {
            if !has_it(&report) && report.lanes.iter().all(|lane| lane.state != "not answering") {
                break;
            }
            std::thread::sleep(LOOK);
            report = parse(&client.status()?)?;
        }
        Ok(Left { drive, report })
    }

    fn members(&self) -> usize {
        self.report.drives.iter().filter(|drive| drive.state == "member").count()
    }

    /// Drives that a segment at full width takes.
    fn shards(&self) -> usize {
        usize::from(self.report.data_shards) + usize::from(self.report.parity_shards)
    }

    fn segments_alive(&self) -> Option<u64> {
        let drive: Option<&Drive> = self.report.drives.iter().find(|drive| drive.number == self.drive);
        drive.and_then(|drive| drive.segments_alive)
    }

    /// Whether there are drives for what lay on it, and something did.
    fn is_made_anew(&self) -> bool {
        self.members() >= self.shards() && self.segments_alive() != Some(0)
    }

    fn failures_left(&self) -> Option<u8> {
        self.report.lanes.iter().filter_map(|lane| lane.failures_left).min()
    }

    fn is_out_of_reach(&self) -> bool {
        self.report.totals.is_out_of_reach()
    }

    /// How wide new data are written where that is the least; `None` when nothing can be.
    fn width(&self) -> Option<(u8, u8)> {
        self.report.lanes.iter().filter_map(|lane| lane.width).min()
    }

    /// What becomes of what lay on a drive that is not read any more.
    fn held(&self) -> String {
        let replace = format!("`forebay drive replace {} PATH` puts a new one in", self.drive);
        if self.segments_alive() == Some(0) {
            let enough = self.members() >= self.shards();
            return if enough { "Nothing lived on it".to_owned() } else { format!("Nothing lived on it. {replace}") };
        }
        if self.is_out_of_reach() {
            return format!(
                "What is stored needs it: put it back as it is and start the server with it to have that again, and do not wipe it. {replace}, which \
                 does not bring it back"
            );
        }
        match self.is_made_anew() {
            true => "What it held is made anew on the other drives: `forebay status` shows how far that is".to_owned(),
            false => format!(
                "What it held is computed from the other drives, and made anew when there is a drive for it: {replace}"
            ),
        }
    }

    /// What becomes of what lies on a drive that is read still.
    fn holds(&self) -> String {
        let until = "until `forebay drive list` says that it may be taken away";
        match self.members() >= self.shards() {
            true => format!("What lives on it is made anew on the other drives: leave it in {until}"),
            false => format!(
                "Drives in use: {}, and a segment takes {}: what lives on it is made anew only when a new drive is put in (`forebay drive \
                 replace {} PATH`). Leave it in {until}",
                self.members(),
                self.shards(),
                self.drive
            ),
        }
    }

    fn protection(&self) -> String {
        let reach = &self.report.totals.out_of_reach;
        let left = match self.failures_left() {
            _ if self.is_out_of_reach() => {
                let segments = if reach.segments == 1 { "segment is" } else { "segments are" };
                format!(
                    "{} {segments} OUT OF REACH now, with {}: `forebay lost` lists what is",
                    reach.segments,
                    human_bytes(reach.bytes)
                )
            }
            None => "Nothing is stored that could be concerned".to_owned(),
            Some(0) => {
                let until = if self.is_made_anew() { "Until that is done " } else { "" };
                format!("{until}NO MORE DRIVE MAY FAIL: the loss of another one puts data out of reach")
            }
            Some(1) => "1 more drive may fail".to_owned(),
            Some(left) => format!("{left} more drives may fail"),
        };
        let full = (self.report.data_shards, self.report.parity_shards);
        match self.width() {
            None => format!("{left}; nothing can be written any more"),
            Some(width) if width == full => left,
            Some((data, parity)) => {
                format!("{left}; new data are written {data}+{parity} instead of {}+{}", full.0, full.1)
            }
        }
    }

    fn object(&self, done: &str) -> serde_json::Value {
        serde_json::json!({
            "drive": self.drive,
            "done": done,
            "segments_alive": self.segments_alive(),
            "segments_out_of_reach": self.report.totals.out_of_reach.segments,
            "bytes_out_of_reach": self.report.totals.out_of_reach.bytes,
            "failures_left": self.failures_left(),
            "width": self.width(),
            "members": self.members(),
        })
    }
}

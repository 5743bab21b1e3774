//! What a mover tells of itself while it runs: metrics, and progress on a terminal.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use forebay_mover::driver::{Counts, Lookout, Progress, Transfer};
use forebay_mover::machine::JobId;
use forebay_mover::metrics;
use forebay_mover::monitor::MonitorConfig;
use forebay_telemetry::http::MetricsServer;
use forebay_telemetry::reach::{IpNet, ListenError, listen};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::{plain, words};
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::size::human_bytes;

/// Progress is shown so often at most.
const SHOWN_EVERY: Duration = Duration::from_millis(100);
/// So many files are drawn at once; the others are counted in the last line.
const DRAWN_MAX: usize = 16;

/// What is said of how a mover tells of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Telling {
    /// Where metrics are served, if they are.
    pub metrics: Option<SocketAddr>,
    /// Networks whose machines may ask for them.
    pub networks: Vec<IpNet>,
    /// A destination, a source or a registry that fails for so long is an alarm.
    pub alarm_after: Duration,
}

impl Telling {
    /// Serves metrics, if that is wanted, of what the lookout sees.
    ///
    /// # Errors
    /// An address that is taken, or that others could reach.
    pub fn start(&self, output: &Output) -> Result<(Lookout, Option<MetricsServer>), Failure> {
        let lookout = Lookout::new(MonitorConfig { alarm_after: self.alarm_after });
        let Some(address) = self.metrics else { return Ok((lookout, None)) };
        let listener = listen(address, &self.networks, "--metrics", "read how the mover is");
        let listener = listener.map_err(|error: ListenError| match error.is_in_use() {
            true => Failure::retry(&error),
            false => Failure::usage(&error),
        })?;
        let last = lookout.last();
        let text = move || last.get().map(|(at, report)| metrics::text(report, at.elapsed()));
        let serving = MetricsServer::start(listener, self.networks.clone(), text)
            .map_err(|error| Failure::retry(format!("metrics cannot be served: {error}; nothing was moved")))?;
        output.note(&format!("metrics are served on http://{}/metrics", serving.address()));
        Ok((lookout, Some(serving)))
    }
}

/// Shows how far a mover is: a bar for each file that is read or sent, and a line for all; where none can be drawn, a line now and then.
pub struct Show {
    drawn: Option<Bars>,
    told: output::Progress,
    shown: Instant,
    last: Option<Counts>,
}

impl Show {
    /// Nothing yet.
    pub fn new(output: &Output) -> Show {
        let drawn = output.bars().map(Bars::new);
        // Where bars are drawn, or one object is printed, there are no other lines.
        let quiet = output.quiet || drawn.is_some();
        let told = Output { quiet, ..*output }.progress(0, "move {spinner} {msg}");
        Show { drawn, told, shown: Instant::now(), last: None }
    }

    /// So far it is.
    pub fn update(&mut self, progress: &Progress) {
        if self.shown.elapsed() < SHOWN_EVERY {
            return;
        }
        self.shown = Instant::now();
        if let Some(bars) = &mut self.drawn {
            return bars.update(progress.counts(), &progress.transfers());
        }
        // Days may pass without a file.
        let counts = Counts { moved_bytes: 0, ..*progress.counts() };
        if self.last != Some(counts) {
            self.last = Some(counts);
            self.told.update(0, || words(&counts));
        }
    }
}

struct Bars {
    all: MultiProgress,
    line: ProgressBar,
    files: BTreeMap<JobId, FileBar>,
    style: ProgressStyle,
}

/// The bar of a file, and when how much of it had gone through as it was drawn first.
struct FileBar {
    bar: ProgressBar,
    since: Instant,
    bytes: u64,
}

impl FileBar {
    fn update(&self, transfer: &Transfer) {
        let seconds = self.since.elapsed().as_secs_f64();
        if seconds >= SHOWN_EVERY.as_secs_f64() {
            let rate = transfer.bytes.saturating_sub(self.bytes) as f64 / seconds;
            self.bar.set_prefix(format!("{}/s", human_bytes(rate as u64)));
        }
        self.bar.set_position(transfer.bytes.min(transfer.bytes_total));
    }
}

impl Bars {
    fn new(all: MultiProgress) -> Bars {
        let style = |template| ProgressStyle::with_template(template).expect("the templates here are good");
        let line = all.add(ProgressBar::no_length().with_style(style("move {spinner} {msg}")));
        let style = style("  {bar:20} {bytes:>11} of {total_bytes:>11} {prefix:>12}  {wide_msg}");
        Bars { all, line, files: BTreeMap::new(), style }
    }

    fn update(&mut self, counts: &Counts, transfers: &[Transfer]) {
        let all = &self.all;
        self.files.retain(|id, FileBar { bar, .. }| {
            let goes_on = transfers.iter().any(|transfer| transfer.id == *id);
            if !goes_on {
                bar.finish_and_clear();
                all.remove(bar);
            }
            goes_on
        });
        for transfer in transfers {
            if !self.files.contains_key(&transfer.id) && self.files.len() < DRAWN_MAX {
                let bar = ProgressBar::new(transfer.bytes_total).with_style(self.style.clone());
                bar.set_message(message(transfer));
                let bar = self.all.insert_before(&self.line, bar);
                self.files.insert(transfer.id, FileBar { bar, since: Instant::now(), bytes: transfer.bytes });
            }
            if let Some(bar) = self.files.get(&transfer.id) {
                bar.update(transfer);
            }
        }
        let more = transfers.len() - self.files.len();
        let more = if more == 0 { String::new() } else { format!("; {more} more are read or sent") };
        self.line.set_message(words(counts) + &more);
        self.line.tick();
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        self.files.values().for_each(|file| file.bar.finish_and_clear());
        self.line.finish_and_clear();
        output::undrawn();
    }
}

fn message(transfer: &Transfer) -> String {
    match &transfer.to {
        Some(to) => plain(&format!("{} to {to}", transfer.name)),
        None => plain(&format!("{} is checked", transfer.name)),
    }
}

#[cfg(test)]
mod tests {
    use indicatif::{InMemoryTerm, ProgressDrawTarget};

    use super::*;

    #[test]
    fn each_file_has_a_bar_as_long_as_it_is_read_or_sent() {
        let terminal = InMemoryTerm::new(30, 120);
        let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
        let mut bars = Bars::new(MultiProgress::with_draw_target(target));
        let transfer = |number: u64, to: Option<&str>| Transfer {
            id: JobId(number),
            name: format!("run7/{number}.raw"),
            to: to.map(str::to_owned),
            bytes: 512 << 10,
            bytes_total: 1 << 20,
        };
        let counts = Counts { found: 3, ..Counts::default() };
        bars.update(&counts, &[transfer(1, Some("/archive")), transfer(2, None)]);
        let drawn = terminal.contents();
        for words in ["512.00 KiB of", "1.00 MiB", "run7/1.raw to /archive", "run7/2.raw is checked", "3 files found"] {
            assert!(drawn.contains(words), "{words:?} in\n{drawn}");
        }
        let many: Vec<Transfer> = (2..=30).map(|number| transfer(number, None)).collect();
        bars.update(&counts, &many);
        let drawn = terminal.contents();
        assert!(!drawn.contains("run7/1.raw") && drawn.contains("13 more are read or sent"), "{drawn}");
        bars.update(&counts, &[]);
        assert!(!terminal.contents().contains("raw"), "{}", terminal.contents());
    }
}

//! What goes to stdout and stderr: one JSON object or words, logs, progress.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::arguments::{Arguments, LOG_VARIABLE};
use crate::failure::{Exit, Failure};

/// How often a plain line of progress is printed where no bar can be drawn.
const PLAIN_EVERY: Duration = Duration::from_secs(2);

/// The bar that is drawn now: logs must not break it.
static BAR: Mutex<Option<Drawn>> = Mutex::new(None);

#[derive(Clone)]
enum Drawn {
    One(ProgressBar),
    Several(MultiProgress),
}

/// The first error of stdout. What is printed after it is dropped, and the command ends with it.
static STDOUT_FAILURE: OnceLock<Failure> = OnceLock::new();

/// How a command speaks.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// One JSON object on stdout and nothing else there.
    pub json: bool,
    /// No progress.
    pub quiet: bool,
}

impl Output {
    /// As the command line says.
    pub fn new(json: bool, quiet: bool) -> Output {
        Output { json, quiet }
    }

    /// A line of words on stdout; nothing with `--json`.
    pub fn line(&self, text: &str) {
        if !self.json {
            write_stdout(format!("{text}\n").as_bytes());
        }
    }

    /// A line of words that must not break the bar; on stderr with `--json`.
    pub fn event(&self, text: &str) {
        if self.json {
            self.note(text);
        } else {
            suspended(|| write_stdout(format!("{text}\n").as_bytes()));
        }
    }

    /// A line of words on stderr that is no log: what the command is doing.
    pub fn note(&self, text: &str) {
        suspended(|| {
            // There is nobody to tell when stderr is closed.
            let _ = writeln!(io::stderr(), "{text}");
        });
    }

    /// The one object of `--json`; nothing without.
    pub fn object(&self, object: &impl Serialize) {
        if self.json {
            let mut text = serde_json::to_vec(object).expect("what is printed has string keys");
            text.push(b'\n');
            write_stdout(&text);
        }
    }

    /// The one object of a command that has counted something, with the reason why it failed if it did.
    ///
    /// # Errors
    /// The failure.
    pub fn result(&self, object: &mut serde_json::Value, failure: Option<Failure>) -> Result<(), Failure> {
        if let Some(failure) = &failure {
            object["error"] = failure.message.clone().into();
            object["exit"] = failure.exit.code().into();
        }
        self.object(object);
        match failure {
            Some(failure) => Err(Failure { told_json: true, ..failure }),
            None => Ok(()),
        }
    }

    /// Why the command failed.
    pub fn failure(&self, failure: &Failure) {
        if !failure.told_json {
            self.object(&failure.json());
        }
        self.note(&format!("forebay: {}", failure.message));
    }

    /// Where several bars are drawn; nothing where there is no terminal, or one object is printed. [`undrawn`] when they are gone.
    pub fn bars(&self) -> Option<MultiProgress> {
        if !io::stderr().is_terminal() || self.quiet || self.json {
            return None;
        }
        let bars = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        *BAR.lock().unwrap_or_else(PoisonError::into_inner) = Some(Drawn::Several(bars.clone()));
        Some(bars)
    }

    /// A progress of `length` steps, drawn with `template` on a terminal, in plain lines elsewhere.
    pub fn progress(&self, length: u64, template: &str) -> Progress {
        let bar = if io::stderr().is_terminal() && !self.quiet {
            let style = ProgressStyle::with_template(template).expect("the templates here are good");
            let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr()).with_style(style);
            *BAR.lock().unwrap_or_else(PoisonError::into_inner) = Some(Drawn::One(bar.clone()));
            Some(bar)
        } else {
            None
        };
        let start = Instant::now();
        Progress { bar, length, quiet: self.quiet, start, told: start }
    }
}

/// A progress that is drawn or told.
pub struct Progress {
    bar: Option<ProgressBar>,
    length: u64,
    quiet: bool,
    start: Instant,
    told: Instant,
}

impl Progress {
    /// So many steps are done, and these are the words for it.
    pub fn update(&mut self, done: u64, words: impl FnOnce() -> String) {
        match &self.bar {
            Some(bar) => {
                bar.set_position(done.min(self.length));
                bar.set_message(words());
            }
            None if !self.quiet && self.told.elapsed() >= PLAIN_EVERY => {
                self.told = Instant::now();
                let _ = writeln!(io::stderr(), "forebay: {:.0} s: {}", self.start.elapsed().as_secs_f64(), words());
            }
            None => {}
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            undrawn();
        }
    }
}

/// No bar is drawn any more.
pub fn undrawn() {
    *BAR.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Writes bytes to stdout. Whether that went well is known by [`stdout_failure`].
pub fn write_stdout(bytes: &[u8]) {
    if STDOUT_FAILURE.get().is_some() {
        return;
    }
    let mut stdout = io::stdout().lock();
    if let Err(error) = stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        STDOUT_FAILURE.get_or_init(|| {
            let what = match error.kind() {
                io::ErrorKind::BrokenPipe => "whoever read stdout has closed it".to_owned(),
                _ => format!("stdout cannot be written: {error}"),
            };
            Failure::retry(format!(
                "{what}. What the command did is done, only what it prints is not whole. Give stdout another place and run it again"
            ))
        });
    }
}

/// Why stdout does not have everything, if it does not. Commands that go on for long look at it, and end; `main` tells it.
pub fn stdout_failure() -> Option<&'static Failure> {
    STDOUT_FAILURE.get()
}

/// Does something while the bar, if there is one, is away.
fn suspended(action: impl FnOnce()) {
    let bar = BAR.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match bar {
        Some(Drawn::One(bar)) => bar.suspend(action),
        Some(Drawn::Several(bars)) => bars.suspend(action),
        None => action(),
    }
}

/// Says what is wrong with the command line, in the way that was asked for; help and version are no errors.
pub fn usage_error(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // Help for a closed stdout has no reader.
        return match error.print() {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Output::new(false, false).note(&format!("forebay: stdout cannot be written: {error}"));
                ExitCode::from(Exit::Retry.code())
            }
            _ => ExitCode::SUCCESS,
        };
    }
    let json = std::env::args().any(|argument| argument == "--json");
    if json {
        let words = error.render().to_string();
        // What is wrong, without the advice that follows after an empty line.
        let what: Vec<&str> = words.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
        let what = what.join(" ");
        Output::new(true, false).object(&Failure::usage(what.trim_start_matches("error: ")).json());
    }
    let _ = error.print();
    ExitCode::from(Exit::Usage.code())
}

/// Logs to stderr: as `FOREBAY_LOG` says, else as the command and `-v`, `-q` say.
pub fn start_logging(arguments: &Arguments) {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    let base = if arguments.command.runs_long() { 3 } else { 2 };
    let level = (base + usize::from(arguments.verbose)).saturating_sub(usize::from(arguments.quiet));
    let level = LEVELS[level.min(LEVELS.len() - 1)];
    let asked = std::env::var(LOG_VARIABLE).ok().filter(|text| !text.is_empty());
    let filter = match asked.as_deref().map(EnvFilter::try_new) {
        Some(Ok(filter)) => filter,
        Some(Err(error)) => {
            let _ = writeln!(io::stderr(), "forebay: {LOG_VARIABLE} is ignored: {error}");
            EnvFilter::new(level)
        }
        // What mounts says again, in its own words, what is told here.
        None => EnvFilter::new(format!("{level},fuser=error")),
    };
    let colours = io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(LogWriter)
        .with_ansi(colours)
        .with_target(false)
        .init();
}

/// Lines of the log, printed while no bar is in their way.
struct LogWriter;

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = LogLine;

    fn make_writer(&'a self) -> LogLine {
        LogLine
    }
}

struct LogLine;

impl Write for LogLine {
    /// Nothing is told of a stderr that takes no more: the logger would panic in the thread that served, and a server must
    /// not end because its log cannot be read.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        suspended(|| {
            let _ = io::stderr().write_all(bytes);
        });
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

//! What is written: which inputs, how many events, how fast.

use std::path::{Path, PathBuf};

use forebay_emulators::readout::Input;
use forebay_rawdata::{Format, InputError, Problem, open, split};

use super::DemoCommand;
use crate::failure::Failure;
use crate::readout::Kind;
use crate::size::{human_bytes, human_count};

/// Different events of each generated input.
const GENERATED_EVENTS: u64 = 200;
/// Of a file so much is looked at before the start.
const LOOK_EVENTS: u64 = 1000;
const LOOK_BYTES: u64 = 64 << 20;
/// Of a generator so much.
const LOOK_GENERATED: u64 = 32;
/// What the default number of events is to take, in seconds, until the last put; some more go by until the last file is compared.
const SECONDS: f64 = 17.0;
/// What a byte, a byte of a compressed event, and a fragment cost on the way from writer to file, in seconds: measured on two cores
/// that others used too. The writers are not faster than this, so that the filters keep up with them.
const SECONDS_PER_BYTE: f64 = 6e-9;
const SECONDS_PER_COMPRESSED_BYTE: f64 = 18e-9;
const SECONDS_PER_FRAGMENT: f64 = 4e-6;
/// A run takes at least so long, so that there is a half way to destroy a drive at.
const SECONDS_MIN: f64 = 3.0;

/// What is written.
#[derive(Debug)]
pub struct Plan {
    /// One after the other.
    pub parts: Vec<Part>,
    /// Events that will come, although inputs may be damaged.
    pub events_expected: u64,
    /// About so many bytes.
    pub bytes: u64,
    formats: Vec<&'static str>,
    generated: bool,
}

/// What is written of one input.
#[derive(Debug)]
pub struct Part {
    /// The input.
    pub input: Input,
    /// So many of its events; it is multiplied or cut to it.
    pub events: u64,
    /// Events per second.
    pub rate: f64,
}

/// What was seen of an input.
struct Seen {
    format: Format,
    events: u64,
    bytes: u64,
    fragments: u64,
    /// It is damaged behind these events.
    damaged: bool,
}

impl Plan {
    /// Looks at the inputs.
    ///
    /// # Errors
    /// An input that cannot be read, or inputs without a good event.
    pub fn make(command: &DemoCommand) -> Result<Plan, Failure> {
        let generated = command.input.is_empty();
        let (inputs, seen): (Vec<Input>, Vec<Seen>) =
            if generated { generated_inputs() } else { file_inputs(&command.input)? };
        let count = seen.len() as u64;
        let (mut parts, mut events_expected, mut bytes) = (Vec::new(), 0, 0.0);
        for ((input, seen), place) in inputs.into_iter().zip(&seen).zip(0..) {
            let seconds_each = seen.seconds_per_event();
            let events = match command.events {
                Some(events) => events / count + u64::from(place < events % count),
                None => ((SECONDS / count as f64 / seconds_each) as u64).max(1),
            };
            let seconds = (events as f64 * seconds_each).max(SECONDS_MIN / count as f64);
            let expected = if seen.damaged { events.min(seen.events) } else { events };
            events_expected += expected;
            bytes += expected as f64 * seen.bytes as f64 / seen.events.max(1) as f64;
            if events > 0 {
                parts.push(Part { input, events, rate: events as f64 / seconds });
            }
        }
        let mut formats: Vec<&'static str> = seen.iter().map(|seen| seen.format.name()).collect();
        formats.dedup();
        Ok(Plan { parts, events_expected, bytes: bytes as u64, formats, generated })
    }

    /// For a person.
    pub fn describe(&self) -> String {
        let what = match (self.generated, self.parts.len()) {
            (true, _) => "generated".to_owned(),
            (false, 1) => self.parts[0].input.to_string(),
            (false, files) => format!("{files} files"),
        };
        format!(
            "{what} ({}), {} events of {} in all",
            self.formats.join(", "),
            human_count(self.events_expected),
            human_bytes(self.bytes)
        )
    }
}

impl Seen {
    fn seconds_per_event(&self) -> f64 {
        let whole = self.fragments <= self.events && self.format == Format::Mdf;
        let byte = if whole { SECONDS_PER_COMPRESSED_BYTE } else { SECONDS_PER_BYTE };
        (self.bytes as f64 * byte + self.fragments as f64 * SECONDS_PER_FRAGMENT) / self.events.max(1) as f64
    }
}

/// Two formats, few large fragments and many small ones, so that both ways through the code are seen.
fn generated_inputs() -> (Vec<Input>, Vec<Seen>) {
    let kinds = [(Kind::Faser, Format::Faser, 1), (Kind::Mdf, Format::Mdf, 2)];
    let inputs = kinds.map(|(kind, format, run)| {
        let input = kind.input(u64::from(run), run, GENERATED_EVENTS);
        let mut generator = forebay_rawdata::Generator::new(format, u64::from(run), forebay_types::RunId(run));
        let mut seen = Seen { format, events: 0, bytes: 0, fragments: 0, damaged: false };
        for _ in 0..LOOK_GENERATED {
            let event = generator.next_event();
            seen.add(&event);
        }
        (input, seen)
    });
    inputs.into_iter().unzip()
}

impl Seen {
    fn add(&mut self, event: &forebay_rawdata::RawEvent) {
        self.events += 1;
        self.bytes += event.bytes.len() as u64;
        // An event that cannot be split is told by the readout.
        self.fragments += split(event).map_or(1, |pieces| pieces.len() as u64);
    }
}

fn file_inputs(paths: &[PathBuf]) -> Result<(Vec<Input>, Vec<Seen>), Failure> {
    let mut inputs = Vec::new();
    let mut first_damage = None;
    for path in paths {
        let (seen, damage) = look(path)?;
        if let Some(damage) = damage {
            first_damage.get_or_insert_with(|| format!("{}: {damage}", path.display()));
        }
        inputs.push((Input::File(path.clone()), seen));
    }
    let good: u64 = inputs.iter().map(|(_, seen)| seen.events).sum();
    match first_damage {
        Some(damage) if good == 0 => Err(Failure::data(damage)),
        _ if good == 0 => Err(Failure::usage("the input has no events; nothing was started. Give a file with events")),
        _ => Ok(inputs.into_iter().unzip()),
    }
}

/// The first events of a file, and what is wrong among them.
fn look(path: &Path) -> Result<(Seen, Option<InputError>), Failure> {
    let unusable = |error: &InputError| {
        Failure::usage(format!("cannot read the input {}: {}. Nothing was started", path.display(), error.problem))
    };
    let mut seen = Seen { format: Format::Faser, events: 0, bytes: 0, fragments: 0, damaged: false };
    let events = match open(path) {
        Ok(events) => events,
        Err(error) if matches!(error.problem, Problem::Io { .. }) => return Err(unusable(&error)),
        Err(error) => {
            seen.damaged = true;
            return Ok((seen, Some(error)));
        }
    };
    seen.format = events.format();
    for event in events {
        match event {
            Ok(event) => seen.add(&event),
            Err(error) if matches!(error.problem, Problem::Io { .. }) => return Err(unusable(&error)),
            Err(error) => {
                seen.damaged = true;
                return Ok((seen, Some(error)));
            }
        }
        if seen.events >= LOOK_EVENTS || seen.bytes >= LOOK_BYTES {
            break;
        }
    }
    Ok((seen, None))
}

//! Runs and streams as objects of the store.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use ::forebay_client::{Client, ClientError, Signature};
use forebay_types::{
    BlockRule, RunChange, RunId, SourceFragments, SourceId, SourceSet, StreamDefinition, StreamSources,
};
use serde::Serialize;

use crate::call::run;
use crate::client::{forebay_client, with};
use crate::code::FOREBAY_NOT_FOUND;
use crate::events::stream_of;
use crate::failure::Failure;
use crate::raw::{items, text};
use crate::text::{forebay_text, give_text};

/// Who asks for something that is done with a run, and why. It is kept with the run; either may be null where no reason is demanded.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct forebay_signature {
    /// Who, at most 128 bytes; null: nobody says.
    pub by: *const c_char,
    /// Why, at most 1024 bytes; null: nobody says.
    pub reason: *const c_char,
}

/// So many fragments came of each source from `first` to `last`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct forebay_source_fragments {
    /// The first source.
    pub first: u32,
    /// The last one, which may be the same.
    pub last: u32,
    /// Fragments of each of them.
    pub fragments: u64,
}

/// What a stream is defined to be. The store applies the prescale; all else is for whoever ships.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct forebay_stream_definition {
    /// The sources that it is shipped with, as in "0-15,32"; null: all.
    pub sources: *const c_char,
    /// The format of its files; null: what its events are.
    pub format: *const c_char,
    /// Where it goes: an address, or the name of a destination of the mover's configuration; null: where the mover is told.
    pub destination: *const c_char,
    /// A luminosity block has so many event numbers; 0: it does not end by these.
    pub block_events: u64,
    /// A luminosity block lasts so many seconds; 0: it does not end by these. With both 0 a run is one block; one of both has to be.
    pub block_s: u64,
    /// One event in so many is kept, at least 1.
    pub prescale: u32,
    /// Streams with a higher one are shipped first.
    pub priority: u16,
}

/// # Safety
/// That of `raw`.
unsafe fn text_or_none(pointer: *const c_char, what: &str) -> Result<String, Failure> {
    // SAFETY: the caller says the same.
    if pointer.is_null() { Ok(String::new()) } else { unsafe { text(pointer, what) }.map(str::to_owned) }
}

/// # Safety
/// That of `raw`.
unsafe fn signature_of(signature: Option<&forebay_signature>) -> Result<Signature, Failure> {
    let Some(signature) = signature else { return Ok(Signature::default()) };
    // SAFETY: the caller says the same.
    let (by, reason) =
        unsafe { (text_or_none(signature.by, "who asks"), text_or_none(signature.reason, "the reason")) };
    Ok(Signature { by: by?, reason: reason? })
}

fn json_of(value: &impl Serialize) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(value).map_err(|error| Failure::internal(&error.to_string()))
}

/// Answers with JSON; nobody wants it where there is no place for it.
fn answer<T: Serialize>(
    json: Option<&mut MaybeUninit<*mut forebay_text>>,
    client: Option<&forebay_client>,
    ask: impl FnOnce(&mut Client) -> Result<T, Failure>,
) -> Result<(), Failure> {
    let ask = || json_of(&with(client, |held| ask(&mut held.client))?);
    if json.is_none() { ask().map(drop) } else { give_text(json, ask) }
}

/// # Safety
/// That of `raw`.
unsafe fn change(
    client: Option<&forebay_client>,
    number: u32,
    what: Result<RunChange, Failure>,
    signature: Option<&forebay_signature>,
    json: Option<&mut MaybeUninit<*mut forebay_text>>,
) -> Result<(), Failure> {
    let what = what?;
    // SAFETY: the caller says the same.
    let signature = unsafe { signature_of(signature) }?;
    answer(json, client, |client| Ok(client.change_run(RunId(number), what, &signature)?))
}

/// Takes a run number, durably, for a run of these sources, as in "0-15,32" or "0x100-0x1ff". `signature` may be null. `json` is set to the run as it is then, one JSON object as
/// `forebay run show --json` has it; null: it is not wanted. `FOREBAY_REFUSED`: the text has what is so and what to do, and nothing was changed; that is so of all changes of runs and streams.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_client_declare_run(
    client: Option<&forebay_client>,
    run_number: u32,
    sources: *const c_char,
    signature: Option<&forebay_signature>,
    json: Option<&mut MaybeUninit<*mut forebay_text>>,
) -> i32 {
    run(|| {
        // SAFETY: the caller keeps to the rule of `raw`.
        unsafe {
            let sources: Result<SourceSet, _> = text(sources, "the list of sources")?.parse();
            let what = sources.map(|sources| RunChange::Declare { sources });
            let what = what.map_err(|error| Failure::invalid(error.to_string()));
            change(client, run_number, what, signature, json)
        }
    })
}

/// Data of the run are taken from now on, and it has the streams that are defined now. `signature` and `json` as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_client_start_run(
    client: Option<&forebay_client>,
    run_number: u32,
    signature: Option<&forebay_signature>,
    json: Option<&mut MaybeUninit<*mut forebay_text>>,
) -> i32 {
    // SAFETY: the caller keeps to the rule of `raw`.
    run(|| unsafe { change(client, run_number, Ok(RunChange::Start), signature, json) })
}

/// No more data of the run are taken. `events`: how many events the run control counted, which closing compares; null: nobody counted, and closing needs a signature. `fragments`: how many
/// fragments it counted by source, ascending, which are kept and shown; null with a count of 0: nobody counted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_client_stop_run(
    client: Option<&forebay_client>,
    run_number: u32,
    events: Option<&u64>,
    fragments: *const forebay_source_fragments,
    fragments_count: usize,
    signature: Option<&forebay_signature>,
    json: Option<&mut MaybeUninit<*mut forebay_text>>,
) -> i32 {
    run(|| {
        // SAFETY: the caller keeps to the rule of `raw`.
        unsafe {
            let fragments = fragments_of(items(fragments, fragments_count, "the fragments by source")?);
            let what = fragments.map(|fragments| RunChange::Stop { events: events.copied(), fragments });
            change(client, run_number, what, signature, json)
        }
    })
}

fn fragments_of(given: &[forebay_source_fragments]) -> Result<Vec<SourceFragments>, Failure> {
    let of = |of: &forebay_source_fragments| SourceFragments {
        first: SourceId(of.first),
        last: SourceId(of.last),
        fragments: of.fragments,
    };
    let max = forebay_types::limits::SOURCE_RANGES_MAX;
    let all: Vec<SourceFragments> = given.iter().take(max + 1).map(of).collect();
    let are_sound = SourceFragments::are_sound(&all);
    are_sound.then_some(all).ok_or_else(|| {
        Failure::invalid(format!(
            "the fragments by source are not at most {max} ranges of sources, ascending and apart"
        ))
    })
}

/// No fragment of the run is taken any more. It is refused unless the store knows as many events as were counted, all of them decided; with `accept_difference` it is closed as it is, and the
/// reason of the signature is kept.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_client_close_run(
    client: Option<&forebay_client>,
    run_number: u32,
    accept_difference: bool,
    signature: Option<&forebay_signature>,
    json: Option<&mut MaybeUninit<*mut forebay_text>>,
) -> i32 {
    let what = RunChange::Close { accept_difference };
    // SAFETY: the caller keeps to the rule of `raw`.
    run(|| unsafe { change(client, run_number, Ok(what), signature, json) })
}

/// Nothing of the run is freed until `forebay_client_end_hold`. It needs a reason.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_client_hold_run(
    client: Option<&forebay_client>,
    run_number: u32,
    signature: Option<&forebay_signature>,
    json: Option<&mut MaybeUninit<*mut forebay_text>>,
) -> i32 {
    // SAFETY: the caller keeps to the rule of `raw`.
    run(|| unsafe { change(client, run_number, Ok(RunChange::Hold), signature, json) })
}

/// Ends the hold of a run: what is to go may go again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_client_end_hold(
    client: Option<&forebay_client>,
    run_number: u32,
    signature: Option<&forebay_signature>,
    json: Option<&mut MaybeUninit<*mut forebay_text>>,
) -> i32 {
    // SAFETY: the caller keeps to the rule of `raw`.
    run(|| unsafe { change(client, run_number, Ok(RunChange::EndHold), signature, json) })
}

/// Deletes what is left of a run, for good, and takes no fragment of it any more. It needs a reason, and is refused while the run is held or running.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_client_discard_run(
    client: Option<&forebay_client>,
    run_number: u32,
    signature: Option<&forebay_signature>,
    json: Option<&mut MaybeUninit<*mut forebay_text>>,
) -> i32 {
    // SAFETY: the caller keeps to the rule of `raw`.
    run(|| unsafe { change(client, run_number, Ok(RunChange::Discard), signature, json) })
}

/// A run with what the store knows of it now, one JSON object as `forebay run show --json` has it. `FOREBAY_NOT_FOUND`: it was never declared.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_client_run(
    client: Option<&forebay_client>,
    run_number: u32,
    json: Option<&mut MaybeUninit<*mut forebay_text>>,
) -> i32 {
    let number = run_number;
    run(|| {
        give_text(json, || {
            let known = with(client, |held| Ok(held.client.known_run(RunId(number))?))?;
            json_of(&known.ok_or_else(|| not_declared(number))?)
        })
    })
}

fn not_declared(run: u32) -> Failure {
    let message = format!("run {run} was never declared; nothing was changed. Declare a run before its data come");
    Failure::of_path(FOREBAY_NOT_FOUND, libc::ENOENT, false, message)
}

/// The runs that were declared, from this number on, ascending: one JSON object as `forebay run list --json` has it.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_client_runs(
    client: Option<&forebay_client>,
    from: u32,
    json: Option<&mut MaybeUninit<*mut forebay_text>>,
) -> i32 {
    run(|| {
        give_text(json, || {
            let runs = with(client, |held| Ok(held.client.known_runs(Some(RunId(from)))?))?;
            json_of(&serde_json::json!({ "runs": runs }))
        })
    })
}

/// Defines a stream, durably: version 1, or one more than the newest. Runs that are started from then on have it. `by`: who defines it; may be null. `json` is set to the version, one JSON object;
/// null: it is not wanted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_client_define_stream(
    client: Option<&forebay_client>,
    name: *const c_char,
    definition: Option<&forebay_stream_definition>,
    by: *const c_char,
    json: Option<&mut MaybeUninit<*mut forebay_text>>,
) -> i32 {
    run(|| {
        // SAFETY: the caller keeps to the rule of `raw`.
        let (name, definition, by) =
            unsafe { (stream_of(name)?, definition_of(definition)?, text_or_none(by, "who defines it")?) };
        answer(json, client, |client| Ok(client.define_stream(&name, definition, &by)?))
    })
}

/// # Safety
/// That of `raw`.
unsafe fn definition_of(given: Option<&forebay_stream_definition>) -> Result<StreamDefinition, Failure> {
    let given = crate::raw::given(given, "the definition")?;
    let invalid = |what: String| Failure::invalid(what);
    let sources = match given.sources.is_null() {
        true => StreamSources::All,
        // SAFETY: the caller says the same.
        false => unsafe { text(given.sources, "the list of sources") }?
            .parse()
            .map_err(|error: forebay_types::ParseSourcesError| invalid(error.to_string()))?,
    };
    let block = match (given.block_events, given.block_s) {
        (0, 0) => BlockRule::Run,
        (events, 0) => BlockRule::Events(events),
        (0, seconds) => BlockRule::Seconds(seconds),
        _ => return Err(invalid("a luminosity block that ends by events and by seconds".to_owned())),
    };
    // SAFETY: as above.
    let (format, destination) =
        unsafe { (text_or_none(given.format, "the format")?, text_or_none(given.destination, "the destination")?) };
    let (prescale, priority) = (given.prescale, given.priority);
    let definition = StreamDefinition { sources, prescale, format, priority, destination, block };
    definition.check().map_err(|error| invalid(error.to_string()))?;
    Ok(definition)
}

fn give_streams(
    client: Option<&forebay_client>,
    json: Option<&mut MaybeUninit<*mut forebay_text>>,
    ask: impl FnOnce(&mut Client) -> Result<Vec<forebay_types::StreamVersion>, ClientError>,
) -> Result<(), Failure> {
    give_text(json, || {
        let streams = with(client, |held| Ok(ask(&mut held.client)?))?;
        json_of(&serde_json::json!({ "streams": streams }))
    })
}

/// The newest definition of each stream that is defined, one JSON object as `forebay stream list --json` has it.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_client_streams(
    client: Option<&forebay_client>,
    json: Option<&mut MaybeUninit<*mut forebay_text>>,
) -> i32 {
    run(|| give_streams(client, json, Client::stream_definitions))
}

/// All versions of a stream, the oldest first, one JSON object as `forebay stream show --json` has it; an empty list when it is not defined.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_client_stream_versions(
    client: Option<&forebay_client>,
    name: *const c_char,
    json: Option<&mut MaybeUninit<*mut forebay_text>>,
) -> i32 {
    run(|| {
        // SAFETY: the caller keeps to the rule of `raw`.
        let name = unsafe { stream_of(name) }?;
        give_streams(client, json, |client| client.stream_versions(&name))
    })
}

/// The definitions that hold for a run, of the versions that it was started with; the newest for one that was not declared or not started. One JSON object as that of `forebay_client_streams`.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_client_streams_of_run(
    client: Option<&forebay_client>,
    run_number: u32,
    json: Option<&mut MaybeUninit<*mut forebay_text>>,
) -> i32 {
    run(|| give_streams(client, json, |client| client.streams_of_run(RunId(run_number))))
}

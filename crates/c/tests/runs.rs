//! What a run control does by the library: runs and streams.

mod common;

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::ptr;

use common::world::*;
use forebay::*;
use serde_json::Value;

const REASON: forebay_signature = forebay_signature { by: c"shifter".as_ptr(), reason: c"to be looked at".as_ptr() };
const ALL_EVENTS: forebay_stream_definition = forebay_stream_definition {
    sources: ptr::null(),
    format: ptr::null(),
    destination: ptr::null(),
    block_events: 0,
    block_s: 0,
    prescale: 1,
    priority: 0,
};

type Place<'a> = Option<&'a mut MaybeUninit<*mut forebay_text>>;

/// The JSON that a call gave.
#[track_caller]
fn json(call: impl FnOnce(Place<'_>) -> i32) -> Value {
    let text = made(call);
    // SAFETY: it ends with a zero, and is not freed meanwhile.
    let words = unsafe { CStr::from_ptr(forebay_text_data(Some(&text))) };
    serde_json::from_slice(words.to_bytes()).expect("JSON")
}

#[track_caller]
fn declare(client: &forebay_client, run: u32, sources: &CStr) -> Value {
    // SAFETY: the text is there.
    json(|place| unsafe { forebay_client_declare_run(Some(client), run, sources.as_ptr(), Some(&REASON), place) })
}

#[track_caller]
fn define(client: &forebay_client, name: &CStr, definition: &forebay_stream_definition) -> Value {
    // SAFETY: the texts are there.
    json(|place| unsafe {
        forebay_client_define_stream(Some(client), name.as_ptr(), Some(definition), ptr::null(), place)
    })
}

/// Events of one source, all of them rejected.
fn decided_events(client: &forebay_client, run: u32, count: u64) {
    for event in 0..count {
        let id = forebay_fragment_id { run, source: 0, event };
        // SAFETY: the bytes are there.
        good(unsafe { forebay_client_put(Some(client), id, 1, b"bytes".as_ptr().cast(), 5) });
    }
    good(forebay_client_flush(Some(client)));
    for event in 0..count {
        let key = forebay_event_key { run, event };
        let decision = forebay_decision { key, streams: ptr::null(), streams_count: 0, incomplete: false };
        // SAFETY: there is one decision, and room for one outcome.
        good(unsafe { forebay_client_decide(Some(client), &decision, 1, &mut 0) });
    }
}

#[test]
fn a_run_goes_from_its_declaration_to_its_end() {
    let world = World::new();
    let client = world.client();
    let stream = forebay_stream_definition {
        sources: c"0-3".as_ptr(),
        format: c"mdf".as_ptr(),
        prescale: 10,
        priority: 7,
        block_s: 60,
        ..ALL_EVENTS
    };
    assert_eq!(define(&client, c"physics", &ALL_EVENTS)["version"], 1);
    let defined = define(&client, c"physics", &stream);
    assert!(defined["version"] == 2 && defined["sources"] == "0-3" && defined["block"]["seconds"] == 60, "{defined}");

    let declared = declare(&client, 1920, c"0-15,32");
    assert!(declared["state"] == "declared" && declared["sources"] == "0-15,32", "{declared}");
    assert!(declared["declared"]["by"] == "shifter" && declared["declared"]["reason"] == "to be looked at");
    // SAFETY: nobody signs, and nobody wants to know.
    good(unsafe { forebay_client_start_run(Some(&client), 1920, None, None) });
    define(&client, c"physics", &ALL_EVENTS);
    let of_run = json(|place| forebay_client_streams_of_run(Some(&client), 1920, place));
    assert!(of_run["streams"][0]["version"] == 2 && of_run["streams"].as_array().map(Vec::len) == Some(1), "{of_run}");
    let newest = json(|place| forebay_client_streams(Some(&client), place));
    assert_eq!(newest["streams"][0]["version"], 3);
    // SAFETY: the text is there.
    let all = json(|place| unsafe { forebay_client_stream_versions(Some(&client), c"physics".as_ptr(), place) });
    assert_eq!(all["streams"].as_array().map(Vec::len), Some(3));

    decided_events(&client, 1920, 5);
    let counts = [forebay_source_fragments { first: 0, last: 15, fragments: 5 }];
    // SAFETY: there is one count.
    let stopped = json(|place| unsafe {
        forebay_client_stop_run(Some(&client), 1920, Some(&5), counts.as_ptr(), 1, Some(&REASON), place)
    });
    assert!(stopped["state"] == "stopped" && stopped["expected_fragments"][0]["fragments"] == 5, "{stopped}");
    // SAFETY: as above.
    let closed = json(|place| unsafe { forebay_client_close_run(Some(&client), 1920, false, None, place) });
    assert!(closed["state"] == "closed" && closed["counted"]["events"] == 5, "{closed}");
    let known = json(|place| forebay_client_run(Some(&client), 1920, place));
    assert!(known["known"]["events"] == 5 && known["known"]["finished"] == 5, "{known}");

    declare(&client, 7, c"1");
    let listed = |from| {
        let runs = json(|place| forebay_client_runs(Some(&client), from, place));
        let runs = runs["runs"].as_array().expect("runs").iter().map(|run| run["run"].as_u64());
        runs.collect::<Vec<_>>()
    };
    assert_eq!((listed(0), listed(8), listed(1921)), (vec![Some(7), Some(1920)], vec![Some(1920)], vec![]));
}

#[test]
fn a_run_that_is_held_is_not_discarded_and_what_was_counted_wrong_is_signed_off() {
    let world = World::new();
    let client = world.client();
    declare(&client, 5, c"0");
    decided_events(&client, 5, 3);
    // SAFETY: the texts are there, and no fragments were counted.
    unsafe {
        good(forebay_client_start_run(Some(&client), 5, None, None));
        good(forebay_client_hold_run(Some(&client), 5, Some(&REASON), None));
        good(forebay_client_stop_run(Some(&client), 5, Some(&4), ptr::null(), 0, None, None));
        let closed = forebay_client_close_run(Some(&client), 5, false, None, None);
        fails(closed, FOREBAY_REFUSED, libc::EACCES, "4");
        good(forebay_client_close_run(Some(&client), 5, true, Some(&REASON), None));
        let discarded = forebay_client_discard_run(Some(&client), 5, Some(&REASON), None);
        fails(discarded, FOREBAY_REFUSED, libc::EACCES, "held");
        let ended = json(|place| forebay_client_end_hold(Some(&client), 5, None, place));
        assert!(ended["hold"]["ended"]["at_unix_ns"].is_i64(), "{ended}");
        let discarded = json(|place| forebay_client_discard_run(Some(&client), 5, Some(&REASON), place));
        assert_eq!(discarded["state"], "discarded");
    }
}

#[test]
fn what_cannot_be_meant_is_refused_and_changes_nothing() {
    let world = World::new();
    let client = world.client();
    // SAFETY: the texts are there, or null.
    unsafe {
        let declare = |sources: &CStr| forebay_client_declare_run(Some(&client), 1, sources.as_ptr(), None, None);
        fails(declare(c"3-1"), FOREBAY_INVALID, libc::EINVAL, "3-1");
        fails(
            forebay_client_declare_run(Some(&client), 1, ptr::null(), None, None),
            FOREBAY_INVALID,
            libc::EINVAL,
            "null",
        );
        let overlapping = [(0, 5), (5, 9)].map(|(first, last)| forebay_source_fragments { first, last, fragments: 1 });
        let stopped = forebay_client_stop_run(Some(&client), 1, None, overlapping.as_ptr(), 2, None, None);
        fails(stopped, FOREBAY_INVALID, libc::EINVAL, "apart");
        fails(forebay_client_start_run(Some(&client), 1, None, None), FOREBAY_REFUSED, libc::EACCES, "declare");
        let long = CString::new("n".repeat(200)).expect("text");
        let long = forebay_signature { by: long.as_ptr(), reason: ptr::null() };
        let declared = forebay_client_declare_run(Some(&client), 1, c"0".as_ptr(), Some(&long), None);
        fails(declared, FOREBAY_REFUSED, libc::EACCES, "128");
        for (definition, said) in [
            (forebay_stream_definition { prescale: 0, ..ALL_EVENTS }, "prescale"),
            (forebay_stream_definition { block_s: 1, block_events: 1, ..ALL_EVENTS }, "block"),
            (forebay_stream_definition { sources: c"".as_ptr(), ..ALL_EVENTS }, "sources"),
        ] {
            let defined =
                forebay_client_define_stream(Some(&client), c"physics".as_ptr(), Some(&definition), ptr::null(), None);
            fails(defined, FOREBAY_INVALID, libc::EINVAL, said);
        }
        let named =
            forebay_client_define_stream(Some(&client), c"no name".as_ptr(), Some(&ALL_EVENTS), ptr::null(), None);
        fails(named, FOREBAY_INVALID, libc::EINVAL, "name");
    }
    let code = not_made(|place| forebay_client_run(Some(&client), 1, place));
    fails(code, FOREBAY_NOT_FOUND, libc::ENOENT, "never declared");
    let streams = json(|place| forebay_client_streams(Some(&client), place));
    assert_eq!(streams["streams"].as_array().map(Vec::len), Some(0));
}

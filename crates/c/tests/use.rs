//! What programs do: fragments, events, files, from several threads.

mod common;

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;

use common::world::*;
use forebay::*;

const ALL: u64 = 60_000;

fn id(event: u64, source: u32) -> forebay_fragment_id {
    forebay_fragment_id { run: 3, source, event }
}

fn put(client: &forebay_client, id: forebay_fragment_id, expected: u16, payload: &[u8]) {
    // SAFETY: the bytes are there.
    good(unsafe { forebay_client_put(Some(client), id, expected, payload.as_ptr().cast(), payload.len()) });
}

fn results(client: &forebay_client, longest_ms: u64, max: usize) -> Vec<forebay_put_result> {
    let mut results = Vec::with_capacity(max);
    let room = results.as_mut_ptr();
    // SAFETY: there is room for so many, and as many are set as it says.
    unsafe {
        let count = given(|place| forebay_client_wait_put_results(Some(client), longest_ms, room, max, place));
        results.set_len(count);
    }
    results
}

/// Ten events of two fragments.
fn put_events(client: &forebay_client) {
    for event in 0..10 {
        put(client, id(event, 1), 2, &content(event, 1000));
        put(client, id(event, 2), 2, &content(event + 100, 2000));
    }
    good(forebay_client_flush(Some(client)));
    assert_eq!(given(|place| forebay_client_pending_puts(Some(client), place)), 0);
}

/// The bytes of a fragment that was read.
fn bytes_of(fragment: &forebay_fragment) -> Vec<u8> {
    // SAFETY: what it was read with is not freed yet.
    unsafe { std::slice::from_raw_parts(fragment.bytes, fragment.bytes_count) }.to_vec()
}

#[test]
fn each_put_has_one_result_and_reads_give_what_was_put() {
    let world = World::new();
    let client = world.client();
    put_events(&client);
    // Those that there is no room for come with the next call.
    let mut told = results(&client, ALL, 7);
    assert_eq!(told.len(), 7);
    told.extend(results(&client, ALL, 100));
    assert_eq!(told.len(), 20);
    assert!(
        told.iter().all(|result| result.outcome == FOREBAY_PUT_DURABLE && result.answered && result.latency_ns > 0)
    );
    assert!(results(&client, 0, 100).is_empty());

    let found = made(|place| forebay_client_get(Some(&client), id(4, 2), place));
    let fragment = given(|place| forebay_fragments_at(Some(&found), 0, place));
    assert_eq!((fragment.id, fragment.outcome), (id(4, 2), FOREBAY_READ_FOUND));
    assert!(bytes_of(&fragment) == content(104, 2000));
    let mut place = MaybeUninit::uninit();
    fails(
        forebay_fragments_at(Some(&found), 1, Some(&mut place)),
        FOREBAY_INVALID,
        libc::EINVAL,
        "no fragment 1 among 1",
    );
    let code = not_made(|place| forebay_client_get(Some(&client), id(77, 2), place));
    fails(code, FOREBAY_NOT_FOUND, libc::ENOENT, "3/77/2");

    let ids = [id(9, 1), id(77, 1), id(0, 2)];
    // SAFETY: the ids are there.
    let found = made(|place| unsafe { forebay_client_get_many(Some(&client), ids.as_ptr(), ids.len(), place) });
    let outcomes = (0..3).map(|at| given(|place| forebay_fragments_at(Some(&found), at, place)).outcome);
    assert!(outcomes.eq([FOREBAY_READ_FOUND, FOREBAY_READ_NOT_FOUND, FOREBAY_READ_FOUND]));
}

#[test]
fn bytes_with_another_sum_are_not_stored() {
    let world = World::new();
    let mut config = world.config();
    good(forebay_config_set_deadline_ms(Some(&mut config), 500));
    let client = made(|place| forebay_client_connect(Some(&config), place));
    let bytes = content(1, 500);
    // SAFETY: the bytes are there.
    let sum = given(|place| unsafe { forebay_crc32c(bytes.as_ptr().cast(), bytes.len(), place) });
    for (source, sum) in [(1, sum), (2, sum ^ 1)] {
        // SAFETY: as above.
        let code = unsafe {
            forebay_client_put_with_crc32c(Some(&client), id(1, source), 0, bytes.as_ptr().cast(), bytes.len(), sum)
        };
        good(code);
    }
    good(forebay_client_flush(Some(&client)));
    let mut told = results(&client, 0, 10);
    told.sort_by_key(|result| result.id.source);
    let outcomes: Vec<i32> = told.iter().map(|result| result.outcome).collect();
    assert_eq!(outcomes, [FOREBAY_PUT_DURABLE, FOREBAY_PUT_CHECKSUM_MISMATCH]);
}

#[test]
fn a_filter_leases_reads_and_decides_and_a_mover_releases() {
    let world = World::new();
    let client = world.client();
    let stream = c"physics";
    // SAFETY: the name is there.
    let look =
        made(|place| unsafe { forebay_client_subscribe(Some(&client), None, std::ptr::null(), 1_000_000, place) });
    put_events(&client);

    let mut leased = Vec::with_capacity(20);
    let (room, other_run) = (leased.as_mut_ptr(), 8);
    // SAFETY: there is room for so many, and as many are set as it says.
    let (none, lease) = unsafe {
        let none = given(|place| forebay_client_lease(Some(&client), 60_000, 1, Some(&other_run), room, 20, place));
        let lease = given(|place| forebay_client_lease(Some(&client), 60_000, 1, Some(&3), room, 20, place));
        leased.set_len(lease.count);
        (none, lease)
    };
    assert_eq!((none.count, lease.count, lease.undecided), (0, 10, 10));
    assert!(
        leased
            .iter()
            .all(|event: &forebay_listed_event| event.fragments == 2 && event.bytes == 3000 && !event.incomplete)
    );
    let keys: Vec<forebay_event_key> = leased.iter().map(|event| event.key).collect();
    // SAFETY: the keys and the source are there.
    let (whole, part) = unsafe {
        let get = |sources: &[u32]| {
            let pointer = if sources.is_empty() { std::ptr::null() } else { sources.as_ptr() };
            made(|place| forebay_client_get_events(Some(&client), keys.as_ptr(), 10, pointer, sources.len(), place))
        };
        (get(&[]), get(&[2]))
    };
    for (index, key) in keys.iter().enumerate() {
        let event = given(|place| forebay_events_at(Some(&whole), index, place));
        assert_eq!((event.key, event.outcome, event.state), (*key, FOREBAY_READ_FOUND, FOREBAY_EVENT_LEASED));
        assert_eq!((event.expected, event.stored, event.fragments), (2, 2, 2));
        let fragment = given(|place| forebay_events_fragment(Some(&whole), index, 1, place));
        assert!(fragment.id.source == 2 && bytes_of(&fragment) == content(key.event + 100, 2000));
        assert_eq!(given(|place| forebay_events_at(Some(&part), index, place)).fragments, 1);
    }

    let names = [stream.as_ptr()];
    let decide = |key: &forebay_event_key| forebay_decision {
        key: *key,
        streams: if key.event.is_multiple_of(2) { names.as_ptr() } else { std::ptr::null() },
        streams_count: usize::from(key.event.is_multiple_of(2)),
        incomplete: false,
    };
    let decisions: Vec<forebay_decision> = keys.iter().map(decide).collect();
    let mut outcomes = [-1; 10];
    // SAFETY: decisions, names and the room for outcomes are there.
    unsafe {
        good(forebay_client_decide(Some(&client), decisions.as_ptr(), 10, outcomes.as_mut_ptr()));
        assert_eq!(outcomes, [FOREBAY_DECIDE_DONE; 10]);
        good(forebay_client_decide(Some(&client), decisions.as_ptr(), 10, outcomes.as_mut_ptr()));
        assert_eq!(outcomes, [FOREBAY_DECIDE_ALREADY_DONE; 10]);
    }
    let accepted = |after: Option<&forebay_event_key>, max: u32| {
        let mut events: Vec<forebay_listed_event> = Vec::with_capacity(20);
        let (room, name): (_, *const c_char) = (events.as_mut_ptr(), stream.as_ptr());
        // SAFETY: there is room for more than `max`, and as many are set as it says.
        unsafe {
            let page = given(|place| forebay_client_accepted(Some(&client), name, after, room, max, place));
            events.set_len(page.count);
            (page, events.iter().map(|event| event.key.event).collect::<Vec<u64>>())
        }
    };
    let (page, first) = accepted(None, 3);
    assert_eq!((page.more, page.has_undecided_floor, first), (true, false, vec![0, 2, 4]));
    let (page, others) = accepted(Some(&forebay_event_key { run: 3, event: 4 }), 20);
    assert_eq!((page.more, others), (false, vec![6, 8]));
    let done = [forebay_event_key { run: 3, event: 6 }, forebay_event_key { run: 3, event: 7 }];
    // SAFETY: keys, name and the room for outcomes are there.
    unsafe {
        good(forebay_client_release(Some(&client), stream.as_ptr(), done.as_ptr(), 2, outcomes.as_mut_ptr()));
        assert_eq!(outcomes[..2], [FOREBAY_DECIDE_DONE, FOREBAY_DECIDE_ALREADY_DONE]);
        let dropped = forebay_event_key { run: 3, event: 8 };
        good(forebay_client_delete(Some(&client), &dropped, 1, outcomes.as_mut_ptr()));
        assert_eq!(outcomes[0], FOREBAY_DECIDE_DONE);
    }
    assert_eq!(accepted(None, 20).1, [0, 2, 4]);

    // Who looked on was told of all of them, and could read those that were still there.
    let mut read = 0;
    loop {
        let events = made(|place| forebay_subscription_next(Some(&client), Some(&look), 0, place));
        match forebay_events_count(Some(&events)) {
            0 => break,
            more => read += more as u64,
        }
    }
    let counts = given(|place| forebay_subscription_get_counts(Some(&look), place));
    assert_eq!((counts.read, counts.read + counts.gone, counts.dropped), (read, 10, 0), "{counts:?}");
}

#[test]
fn the_state_of_server_and_events_is_json() {
    let world = World::new();
    let client = world.client();
    put_events(&client);
    good(forebay_client_ping(Some(&client)));
    let json = |text: Box<forebay_text>| -> serde_json::Value {
        // SAFETY: it ends with a zero and is not freed yet.
        let words = unsafe { CStr::from_ptr(forebay_text_data(Some(&text))) };
        assert_eq!(words.to_bytes().len(), forebay_text_bytes(Some(&text)));
        serde_json::from_slice(words.to_bytes()).expect("JSON")
    };
    let status = json(made(|place| forebay_client_status(Some(&client), place)));
    assert!(status["totals"]["capacity_bytes"].as_u64() > Some(0));
    let key = forebay_event_key { run: 3, event: 4 };
    assert!(json(made(|place| forebay_client_trace(Some(&client), key, place))).is_object());
}

#[test]
fn many_threads_read_one_file_at_the_same_time() {
    const THREADS: usize = 8;
    let world = World::new();
    let mut config = world.config();
    good(forebay_config_set_connections(Some(&mut config), 3));
    let files = made(|place| forebay_files_connect(Some(&config), place));
    let all = content(9, 6_000_000);
    let writer = create(&files, b"/raw", FOREBAY_WRITE_SEAL);
    std::thread::scope(|scope| {
        for part in 0..THREADS {
            let (writer, bytes, all) = (&writer, 6_000_000 / THREADS, &all);
            scope.spawn(move || good(pwrite(writer, (part * bytes) as u64, &all[part * bytes..(part + 1) * bytes])));
        }
    });
    let mut some = vec![0; 1000];
    let into = some.as_mut_ptr().cast();
    // SAFETY: there is room for so many.
    let read = given(|place| unsafe { forebay_writer_pread(Some(&writer), 2_999_500, into, 1000, place) });
    assert!(read == 1000 && some == all[2_999_500..3_000_500], "what was written is read by its writer");
    good(forebay_writer_close(Some(&writer)));

    let shared = open_read(&files, b"/raw");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (files, shared, all) = (&files, &shared, &all);
            scope.spawn(move || {
                let own = open_read(files, b"/raw");
                for turn in 0..20 {
                    let at = (thread * 700_001 + turn * 290_003) % 5_900_000;
                    assert!(pread(shared, at as u64, 65_536) == all[at..(at + 65_536).min(all.len())], "byte {at}");
                    assert!(pread(&own, at as u64, 4_096) == all[at..at + 4_096], "byte {at}");
                    assert_eq!(given(|place| forebay_reader_stat(Some(shared), place)).length, 6_000_000);
                }
                good(forebay_reader_close(Some(&own)));
            });
        }
    });
    assert!(pread(&shared, 6_000_000, 10).is_empty());
}

#[test]
fn another_reader_of_a_file_reads_it_whatever_became_of_its_name() {
    let world = World::new();
    let files = world.files();
    for (seed, flags) in [(1, 0), (2, FOREBAY_WRITE_SEAL)] {
        let writer = create(&files, b"/beside", flags);
        good(pwrite(&writer, 0, &content(seed, 3_000_000)));
        good(forebay_writer_close(Some(&writer)));
        if seed == 1 {
            good(rename(&files, b"/beside", b"/raw"));
        }
    }
    let first = open_read(&files, b"/raw");
    good(rename(&files, b"/beside", b"/raw"));
    let again: Box<forebay_reader> = made(|place| forebay_reader_open_again(Some(&first), place));
    for (at, ahead_end) in [(0, 0), (1_000_000, u64::MAX), (2_000_000, 2_500_000), (500, 500)] {
        assert!(pread(&first, at, 1_000_000) == content(1, 3_000_000)[at as usize..][..1_000_000]);
        let mut bytes = vec![0; 1_000_000];
        let into = bytes.as_mut_ptr().cast();
        // SAFETY: there is room for so many.
        let read =
            given(|place| unsafe { forebay_reader_pread_until(Some(&again), at, into, 1_000_000, ahead_end, place) });
        assert!(read == 1_000_000 && bytes == content(1, 3_000_000)[at as usize..][..1_000_000]);
    }
    good(forebay_reader_close(Some(&again)));
    good(forebay_reader_close(Some(&first)));
    let code =
        not_made(|place: Option<&mut MaybeUninit<*mut forebay_reader>>| forebay_reader_open_again(Some(&first), place));
    fails(code, FOREBAY_CLOSED, libc::EBADF, "closed");
    assert!(pread(&open_read(&files, b"/raw"), 0, 4_000_000) == content(2, 3_000_000));
}

#[test]
fn a_file_is_cut_appended_to_and_read_by_who_writes_it() {
    let world = World::new();
    let files = world.files();
    let writer = create(&files, b"/log", 0);
    let write = |writer: &forebay_writer, bytes: &[u8]| {
        // SAFETY: the bytes are there.
        unsafe { forebay_writer_write(Some(writer), bytes.as_ptr().cast(), bytes.len()) }
    };
    let read = |writer: &forebay_writer| {
        let mut bytes = vec![0; 100];
        let into = bytes.as_mut_ptr().cast();
        // SAFETY: there is room for so many.
        let count = given(|place| unsafe { forebay_writer_pread(Some(writer), 0, into, 100, place) });
        bytes.truncate(count);
        bytes
    };
    good(write(&writer, b"one two"));
    assert_eq!(read(&writer), b"one two");
    good(forebay_writer_truncate(Some(&writer), 3));
    assert_eq!(read(&writer), b"one");
    good(forebay_writer_truncate(Some(&writer), 5));
    assert_eq!(read(&writer), b"one\0\0");
    good(pwrite(&writer, 3, b", 2"));
    assert_eq!(
        (read(&writer), given(|place| forebay_writer_stat(Some(&writer), place)).length),
        (b"one, 2".to_vec(), 6)
    );
    let mut unanswered = MaybeUninit::new(9);
    let acknowledged = given(|place| forebay_writer_progress(Some(&writer), place, Some(&mut unanswered)));
    // SAFETY: it had a value from the beginning.
    assert_eq!((acknowledged, unsafe { unanswered.assume_init() }), (10, 0));
    good(forebay_writer_close(Some(&writer)));
    let (name, bytes) = path(b"/log");
    // SAFETY: the path is there.
    let writer =
        made(|place| unsafe { forebay_files_open_write(Some(&files), name, bytes, FOREBAY_WRITE_APPEND, place) });
    good(write(&writer, b", 3"));
    assert_eq!(read(&writer), b"one, 2, 3");
    good(forebay_writer_close(Some(&writer)));
    assert!(stat(&files, b"/log").is_ok_and(|stat| !stat.is_sealed && stat.length == 9));
}

#[test]
fn a_writer_sets_the_permissions_of_its_own_file_not_of_what_has_its_name() {
    let world = World::new();
    let files = world.files();
    let writer = create(&files, b"/name", FOREBAY_WRITE_SEAL);
    let (from, to) = (path(b"/name"), path(b"/other"));
    // SAFETY: the paths are there.
    good(unsafe { forebay_files_rename(Some(&files), from.0, from.1, to.0, to.1, 0) });
    drop(create(&files, b"/name", 0));
    good(forebay_writer_set_mode(Some(&writer), 0o400));
    fails(forebay_writer_set_mode(Some(&writer), 0o10_000), FOREBAY_INVALID, libc::EINVAL, "no mode");
    good(forebay_writer_close(Some(&writer)));
    let mode = |name: &[u8]| stat(&files, name).expect("there").mode;
    assert_eq!((mode(b"/other"), mode(b"/name")), (0o400, 0o644));
}

#[test]
fn names_are_made_listed_changed_and_removed() {
    let world = World::new();
    let files = world.files();
    let owner = forebay_owner { mode: 0o2750, owner: 1000, group: 100 };
    let (long, short) = (path(b"/run17/raw/part"), path(b"/run17/raw"));
    // SAFETY: the paths are there.
    unsafe {
        good(forebay_files_make_directory(Some(&files), long.0, long.1, Some(&owner), FOREBAY_MAKE_PARENTS));
        good(forebay_files_remove_directory(Some(&files), long.0, long.1));
        good(forebay_files_symlink(Some(&files), c"raw".as_ptr(), 3, c"/run17/link".as_ptr(), 11, None));
        let target = made(|place| forebay_files_read_link(Some(&files), c"/run17/link".as_ptr(), 11, place));
        assert_eq!(CStr::from_ptr(forebay_text_data(Some(&target))), c"raw");
        let code = not_made(|place| forebay_files_read_link(Some(&files), short.0, short.1, place));
        fails(code, FOREBAY_INVALID, libc::EINVAL, "no symbolic link");
    }
    for number in 0..5 {
        let writer = create(&files, format!("/run17/link/file{number}").as_bytes(), FOREBAY_WRITE_SEAL);
        good(pwrite(&writer, 0, &content(number, 100 * number as usize)));
        good(forebay_writer_close(Some(&writer)));
    }
    let list = |detail: i32| {
        let (name, bytes) = path(b"/run17/raw");
        // SAFETY: the path is there.
        let listing = made(|place| unsafe { forebay_files_list(Some(&files), name, bytes, detail, place) });
        let mut entries = Vec::new();
        loop {
            let entry = given(|place| forebay_listing_next(Some(&listing), place));
            if entry.name.is_null() {
                return entries;
            }
            // SAFETY: it ends with a zero, and the listing is not asked for the next one yet.
            let name = unsafe { CStr::from_ptr(entry.name) };
            assert_eq!(name.to_bytes().len(), entry.name_bytes);
            entries.push((name.to_str().expect("text").to_owned(), entry.stat));
        }
    };
    let sizes = list(FOREBAY_LIST_SIZES);
    let names: Vec<&str> = sizes.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["file0", "file1", "file2", "file3", "file4"]);
    assert!(
        sizes
            .iter()
            .zip(0..)
            .all(|((_, stat), number)| stat.length == 100 * number && stat.is_sealed && stat.mode == 0)
    );
    assert!(list(FOREBAY_LIST_ALL).iter().all(|(_, stat)| stat.mode == 0o644 && stat.links == 1));
    assert!(list(FOREBAY_LIST_NAMES).iter().all(|(_, stat)| stat.kind == FOREBAY_KIND_FILE && stat.number > 0));

    let (from, to) = (path(b"/run17/raw/file3"), path(b"/run17/raw/file4"));
    // SAFETY: the paths are there.
    unsafe {
        let rename = |flags| forebay_files_rename(Some(&files), from.0, from.1, to.0, to.1, flags);
        fails(rename(0), FOREBAY_EXISTS, libc::EEXIST, "the name is taken");
        good(rename(FOREBAY_RENAME_REPLACE));
        fails(rename(FOREBAY_RENAME_REPLACE), FOREBAY_NOT_FOUND, libc::ENOENT, "file3");
        good(forebay_files_link(Some(&files), to.0, to.1, from.0, from.1));
        good(forebay_files_set_mode(Some(&files), to.0, to.1, 0o640));
        good(forebay_files_set_owner(Some(&files), to.0, to.1, 7, 8));
        fails(
            forebay_files_remove_directory(Some(&files), short.0, short.1),
            FOREBAY_NOT_EMPTY,
            libc::ENOTEMPTY,
            "not empty",
        );
        let link = path(b"/run17/link");
        let known = given(|place| forebay_files_stat_link(Some(&files), link.0, link.1, place));
        assert_eq!((known.kind, known.length), (FOREBAY_KIND_LINK, 3));
        let unsealed = create(&files, b"/times", 0);
        good(forebay_files_set_times(Some(&files), c"/times".as_ptr(), 6, 17, 19));
        forebay_writer_free(Some(unsealed));
    }
    let known = stat(&files, b"/run17/raw/file3").expect("there");
    assert_eq!((known.length, known.links, known.mode, known.owner, known.group), (300, 2, 0o640, 7, 8));
    let known = stat(&files, b"/times").expect("there");
    assert_eq!((known.written_unix_ns, known.accessed_unix_ns), (17, 19));
    // Those that it gave outlive it.
    let reader = open_read(&files, b"/run17/raw/file3");
    good(remove(&files, b"/run17/raw/file3"));
    good(remove(&files, b"/run17/raw/file4"));
    forebay_files_free(Some(files));
    assert!(pread(&reader, 0, 1000) == content(3, 300), "it is open");
}

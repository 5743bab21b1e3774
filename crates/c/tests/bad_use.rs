//! What a program must not do, and what may happen to it: each is told by a code, and no file is ever a wrong one.

mod common;

use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};

use common::world::*;
use forebay::*;

#[test]
fn null_pointers_and_bad_lengths_are_refused() {
    let world = World::new();
    let (files, client) = (world.files(), world.client());
    let invalid = |code: i32, said: &str| fails(code, FOREBAY_INVALID, libc::EINVAL, said);
    // SAFETY: what is wrong with these pointers is what is to be refused.
    unsafe {
        invalid(not_made(|place| forebay_config_new(null(), null(), place)), "the address is null");
        invalid(
            forebay_config_new(c"host:1".as_ptr(), c"\xff".as_ptr(), Some(&mut MaybeUninit::uninit())),
            "not UTF-8",
        );
        invalid(forebay_config_new(c"host:1".as_ptr(), null(), None), "the place for a handle is null");
        invalid(forebay_files_remove(None, c"/a".as_ptr(), 2), "the files is null");
        invalid(forebay_files_remove(Some(&files), null(), 2), "the path is null");
        invalid(forebay_files_remove(Some(&files), c"/a".as_ptr(), 0), "the path is empty");
        invalid(forebay_files_remove(Some(&files), c"/a".as_ptr(), usize::MAX), "more than there can be");
        invalid(forebay_files_stat(Some(&files), c"/".as_ptr(), 1, None), "null");
        invalid(forebay_files_rename(Some(&files), c"/a".as_ptr(), 2, c"/b".as_ptr(), 2, 8), "flags");
        invalid(not_made(|place| forebay_files_create(Some(&files), c"/a".as_ptr(), 2, None, 64, place)), "flags");
        invalid(not_made(|place| forebay_files_list(Some(&files), c"/".as_ptr(), 1, 9, place)), "a listing");
        let owner = forebay_owner { mode: 0o10_000, owner: 0, group: 0 };
        invalid(forebay_files_make_directory(Some(&files), c"/a".as_ptr(), 2, Some(&owner), 0), "no mode");
        let id = forebay_fragment_id { run: 1, source: 2, event: 3 };
        invalid(forebay_client_put(Some(&client), id, 0, null(), 5), "the payload is null");
        invalid(forebay_client_put(None, id, 0, null(), 0), "the client is null");
        let mut count = MaybeUninit::uninit();
        invalid(forebay_client_take_put_results(Some(&client), null_mut(), 3, Some(&mut count)), "the results is null");
        let decision = |streams, streams_count| forebay_decision {
            key: forebay_event_key { run: 1, event: 3 },
            streams,
            streams_count,
            incomplete: false,
        };
        let mut outcome = 0;
        invalid(
            forebay_client_decide(Some(&client), &decision(null(), 1), 1, &mut outcome),
            "the list of streams is null",
        );
        invalid(forebay_client_decide(Some(&client), &decision(null(), 65), 1, &mut outcome), "more than 64");
        let (no_name, dot) = (null(), c".x".as_ptr());
        invalid(
            forebay_client_decide(Some(&client), &decision(&no_name, 1), 1, &mut outcome),
            "the name of a stream is null",
        );
        invalid(forebay_client_decide(Some(&client), &decision(&dot, 1), 1, &mut outcome), "cannot name a stream");
        let writer = create(&files, b"/file", 0);
        invalid(forebay_writer_pwrite(Some(&writer), u64::MAX - 1, c"abc".as_ptr().cast(), 3), "beyond any file");
        invalid(forebay_writer_write(Some(&writer), null(), 1), "the data is null");
        invalid(forebay_reader_pread(None, 0, null_mut(), 0, Some(&mut count)), "the reader is null");
    }
    invalid(forebay_config_set_class(None, 1), "the config is null");
    let mut config = world.config();
    invalid(forebay_config_set_class(Some(&mut config), 77), "77 is no class");
    invalid(forebay_config_set_connections(Some(&mut config), 0), "not 1 to 64");
    invalid(not_made(|place| forebay_files_connect(None, place)), "the config is null");
    // Nothing to free, and nothing in nothing.
    forebay_files_free(None);
    forebay_writer_free(None);
    forebay_text_free(None);
    assert!(forebay_text_data(None).is_null() && forebay_text_bytes(None) == 0 && forebay_fragments_count(None) == 0);
    assert_eq!(stat(&files, b"/a").err(), Some(FOREBAY_NOT_FOUND), "nothing was made on the way");
}

#[test]
fn each_thread_has_a_failure_of_its_own() {
    let world = World::new();
    let files = world.files();
    assert_eq!(stat(&files, b"/nothing").err(), Some(FOREBAY_NOT_FOUND));
    fails(FOREBAY_NOT_FOUND, FOREBAY_NOT_FOUND, libc::ENOENT, "/nothing: there is no such file or directory");
    let other = std::thread::spawn(|| (forebay_last_code(), forebay_last_errno(), words()));
    assert_eq!(other.join().expect("it looks"), (FOREBAY_DONE, 0, String::new()));
    assert!(stat(&files, b"/").is_ok());
    assert_eq!(forebay_last_code(), FOREBAY_NOT_FOUND, "what is done forgets nothing");
}

#[test]
fn wrong_names_are_refused_and_strange_ones_are_names() {
    let world = World::new();
    let files = world.files();
    let make = |name: &[u8]| {
        let (name, bytes) = path(name);
        // SAFETY: the path is there.
        unsafe { forebay_files_make_directory(Some(&files), name, bytes, None, 0) }
    };
    let long = [&b"/"[..], &[b'x'; 256]].concat();
    for (name, code, errno) in [
        (&b"/a\0b"[..], FOREBAY_BAD_NAME, libc::EINVAL),
        (b"/..", FOREBAY_BAD_NAME, libc::EINVAL),
        (b"/.", FOREBAY_BAD_NAME, libc::EINVAL),
        (b"/", FOREBAY_BAD_NAME, libc::EINVAL),
        (&long, FOREBAY_TOO_LONG, libc::ENAMETOOLONG),
        (b"/no/directory", FOREBAY_NOT_FOUND, libc::ENOENT),
    ] {
        fails(make(name), code, errno, "nothing was changed");
    }
    good(make(b"/\xff\x01 strange"));
    assert_eq!(stat(&files, b"/\xff\x01 strange").map(|stat| stat.kind), Ok(FOREBAY_KIND_DIRECTORY));
    good(make(&long[..256]));
    fails(make(&long[..256]), FOREBAY_EXISTS, libc::EEXIST, "the name is taken");
    fails(remove(&files, &long[..256]), FOREBAY_IS_DIRECTORY, libc::EISDIR, "directory");
    drop(create(&files, b"/file", 0));
    fails(make(b"/file/below"), FOREBAY_NOT_DIRECTORY, libc::ENOTDIR, "not a directory");
    let (name, bytes) = path(b"/\xff\x01 strange");
    // SAFETY: the path is there.
    let code = not_made(|place| unsafe { forebay_files_open_read(Some(&files), name, bytes, place) });
    fails(code, FOREBAY_IS_DIRECTORY, libc::EISDIR, "it is a directory");
}

#[test]
fn of_two_writers_one_is_told_of_the_conflict_and_changes_nothing() {
    let world = World::new();
    let files = world.files();
    let first = create(&files, b"/shared", 0);
    let (name, bytes) = path(b"/shared");
    // SAFETY: the path is there.
    let second = made(|place| unsafe { forebay_files_open_write(Some(&files), name, bytes, 0, place) });
    let (one, other) = (content(1, 300_000), content(2, 300_000));
    good(pwrite(&first, 0, &one));
    good(forebay_writer_sync(Some(&first)));
    good(pwrite(&second, 300_000, &other));
    good(forebay_writer_sync(Some(&second)));
    // SAFETY: the path is there.
    let code = not_made(|place| unsafe { forebay_files_create(Some(&files), name, bytes, None, 0, place) });
    fails(code, FOREBAY_EXISTS, libc::EEXIST, "/shared");
    good(pwrite(&second, 299_999, b"x"));
    fails(forebay_writer_sync(Some(&second)), FOREBAY_CONFLICT, libc::EBUSY, "another writer");
    assert!(!forebay_last_is_retryable());
    fails(forebay_writer_close(Some(&second)), FOREBAY_CONFLICT, libc::EBUSY, "another writer");
    good(forebay_writer_abandon(Some(&second), 0));
    good(forebay_writer_close(Some(&first)));
    let reader = open_read(&files, b"/shared");
    assert!(pread(&reader, 0, 700_000) == [one, other].concat());
}

#[test]
fn a_sealed_file_never_changes_and_one_that_is_not_has_no_sums() {
    let world = World::new();
    let files = world.files();
    let (name, bytes) = path(b"/raw");
    let mut sums = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let mut checksums = |longest_ms| {
        // SAFETY: the path is there.
        unsafe { forebay_files_checksums(Some(&files), name, bytes, longest_ms, Some(&mut sums.0), Some(&mut sums.1)) }
    };
    fails(checksums(0), FOREBAY_NOT_FOUND, libc::ENOENT, "/raw");
    let writer = create(&files, b"/raw", FOREBAY_WRITE_SEAL);
    fails(checksums(0), FOREBAY_NOT_SEALED, libc::ENODATA, "not sealed");
    let all = content(3, 2_000_000);
    good(pwrite(&writer, 0, &all));
    good(forebay_writer_sync(Some(&writer)));
    fails(checksums(1_000), FOREBAY_NOT_SEALED, libc::ENODATA, "Seal it when it is complete");
    good(forebay_writer_close(Some(&writer)));
    good(forebay_writer_close(Some(&writer)));
    fails(pwrite(&writer, 0, b"more"), FOREBAY_CLOSED, libc::EBADF, "closed");
    good(checksums(20_000));
    // SAFETY: they were set.
    assert_eq!(unsafe { sums.0.assume_init() }, forebay_types::crc32c(&all));
    let known = stat(&files, b"/raw").expect("there");
    assert!(known.is_sealed && known.has_sums && known.has_length && !known.is_written);
    // SAFETY: as above.
    assert_eq!((known.length, known.adler32), (2_000_000, unsafe { sums.1.assume_init() }));
    // SAFETY: the path is there.
    let code = not_made(|place| unsafe { forebay_files_open_write(Some(&files), name, bytes, 0, place) });
    fails(code, FOREBAY_SEALED, libc::EPERM, "does not change any more");
}

#[test]
fn a_full_store_says_so_keeps_what_it_has_and_goes_on_when_there_is_room() {
    let world = World::with_drives_of(32 << 20);
    let mut config = world.config();
    good(forebay_config_set_patience_ms(Some(&mut config), 300));
    let files = made(|place| forebay_files_connect(Some(&config), place));
    let kept = create(&files, b"/kept", FOREBAY_WRITE_SEAL);
    good(pwrite(&kept, 0, &content(4, 1 << 20)));
    good(forebay_writer_close(Some(&kept)));
    let room = || {
        let mut capacity = MaybeUninit::new(0);
        let free = given(|place| forebay_files_room(Some(&files), Some(&mut capacity), place));
        // SAFETY: it had a value from the beginning.
        (unsafe { capacity.assume_init() }, free)
    };
    let (capacity, free) = room();
    assert!(free < capacity && capacity < 128 << 20, "{free} of {capacity}");
    let large = create(&files, b"/large", FOREBAY_WRITE_SEAL);
    let part = content(5, 1 << 20);
    let failed = (0..200).map(|number| pwrite(&large, number << 20, &part)).find(|code| *code != FOREBAY_DONE);
    fails(failed.expect("it is full"), FOREBAY_NO_SPACE, libc::ENOSPC, "the store is full");
    assert!(forebay_last_is_retryable());
    good(forebay_writer_abandon(Some(&large), FOREBAY_ABANDON_REMOVE));
    assert_eq!(stat(&files, b"/large").err(), Some(FOREBAY_NOT_FOUND));
    // The room comes back, and what was there stays.
    loop {
        let again = create(&files, b"/again", FOREBAY_WRITE_SEAL);
        let written = (0..20).map(|number| pwrite(&again, number << 20, &part)).all(|code| code == FOREBAY_DONE);
        if written && forebay_writer_close(Some(&again)) == FOREBAY_DONE {
            break;
        }
        fails(forebay_last_code(), FOREBAY_NO_SPACE, libc::ENOSPC, "the store is full");
        good(forebay_writer_abandon(Some(&again), FOREBAY_ABANDON_REMOVE));
    }
    assert!(pread(&open_read(&files, b"/kept"), 0, 2 << 20) == content(4, 1 << 20));
}

#[test]
fn a_server_that_is_started_anew_costs_a_copy_nothing_and_one_that_is_away_is_told() {
    let mut world = World::new();
    let mut config = world.config();
    good(forebay_config_set_deadline_ms(Some(&mut config), 1_000));
    let (files, patient) = (made(|place| forebay_files_connect(Some(&config), place)), world.files());
    let all = content(6, 3_000_000);
    let writer = create(&patient, b"/raw", FOREBAY_WRITE_SEAL);
    let reader = {
        good(pwrite(&writer, 0, &all[..1_000_000]));
        good(forebay_writer_sync(Some(&writer)));
        open_read(&patient, b"/raw")
    };
    assert!(pread(&reader, 0, 10_000) == all[..10_000]);
    world.stop();
    fails(stat(&files, b"/raw").expect_err("nobody answers"), FOREBAY_TIMED_OUT, libc::ETIMEDOUT, "no answer from");
    assert!(forebay_last_is_retryable());
    let address = std::ffi::CString::new(world.address()).expect("text");
    // SAFETY: the texts end with a zero.
    let mut must_listen = made(|place| unsafe { forebay_config_new(address.as_ptr(), c"test".as_ptr(), place) });
    good(forebay_config_set_must_listen(Some(&mut must_listen), true));
    let code = not_made(|place| forebay_client_connect(Some(&must_listen), place));
    fails(code, FOREBAY_NO_SERVER, libc::ECONNREFUSED, "nothing listens");
    good(pwrite(&writer, 1_000_000, &all[1_000_000..2_000_000]));
    world.start();
    good(pwrite(&writer, 2_000_000, &all[2_000_000..]));
    assert!(pread(&reader, 500_000, 100_000) == all[500_000..600_000]);
    good(forebay_writer_close(Some(&writer)));
    // It may have just begun to wait before it connects again, longer than its deadline.
    while stat(&files, b"/raw").err() == Some(FOREBAY_TIMED_OUT) {}
    assert!(pread(&open_read(&files, b"/raw"), 0, 4_000_000) == all, "what failed before goes on, too");
    assert!(stat(&files, b"/raw").expect("there").is_sealed);
}

#[test]
fn what_a_writer_leaves_is_not_sealed_and_what_it_takes_back_is_gone() {
    let world = World::new();
    let files = world.files();
    let written = content(7, 100_000);
    let write = |name: &[u8]| {
        let writer = create(&files, name, FOREBAY_WRITE_SEAL);
        good(pwrite(&writer, 0, &written));
        good(forebay_writer_sync(Some(&writer)));
        writer
    };
    forebay_writer_free(Some(write(b"/left")));
    let known = stat(&files, b"/left").expect("there");
    assert!(!known.is_sealed && known.length == 100_000);
    assert!(pread(&open_read(&files, b"/left"), 0, 200_000) == written);
    let (name, bytes) = path(b"/left");
    // SAFETY: the path is there.
    good(unsafe { forebay_files_seal(Some(&files), name, bytes) });
    assert!(stat(&files, b"/left").expect("there").is_sealed);

    good(forebay_writer_abandon(Some(&write(b"/kept")), 0));
    assert!(stat(&files, b"/kept").is_ok_and(|stat| !stat.is_sealed && !stat.is_written));
    good(forebay_writer_abandon(Some(&write(b"/gone")), FOREBAY_ABANDON_REMOVE));
    assert_eq!(stat(&files, b"/gone").err(), Some(FOREBAY_NOT_FOUND));
    // Its name is that of another file now, which stays.
    let writer = write(b"/name");
    good(remove(&files, b"/name"));
    good(forebay_writer_close(Some(&create(&files, b"/name", FOREBAY_WRITE_SEAL))));
    assert_eq!(given(|place| forebay_writer_stat(Some(&writer), place)).length, 100_000, "it is open");
    good(forebay_writer_abandon(Some(&writer), FOREBAY_ABANDON_REMOVE));
    assert!(stat(&files, b"/name").is_ok_and(|stat| stat.is_sealed));
}

#[test]
fn a_server_that_is_killed_costs_a_writer_and_a_reader_nothing() {
    let mut world = World::in_a_process();
    let files = world.files();
    let all = content(9, 24_000_000);
    let writer = create(&files, b"/raw.part", FOREBAY_WRITE_SEAL);
    let mut kill_at = [1, 7, 15].into_iter().peekable();
    let mut reader = None;
    for (number, part) in all.chunks(1_000_000).enumerate() {
        // With what is on its way, and nobody said to be durable.
        let is_killed = kill_at.next_if(|at| *at == number).is_some();
        if is_killed {
            world.kill();
        }
        good(pwrite(&writer, number as u64 * 1_000_000, part));
        if is_killed {
            world.start_process();
            assert!(!stat(&files, b"/raw.part").expect("there").is_sealed, "nobody takes a part for all of it");
        }
        if number == 10 {
            good(forebay_writer_sync(Some(&writer)));
            reader = Some(open_read(&files, b"/raw.part"));
        }
    }
    world.kill();
    // Its end is asked for while nobody is there.
    let start = std::thread::spawn(move || {
        world.start_process();
        world
    });
    good(forebay_writer_close(Some(&writer)));
    let mut world = start.join().expect("started");
    assert!(stat(&files, b"/raw.part").expect("there").is_sealed);
    world.kill();
    world.start_process();
    assert!(pread(&reader.expect("open"), 0, 30_000_000) == all);
    assert!(pread(&open_read(&files, b"/raw.part"), 0, 30_000_000) == all);
}

#[test]
fn a_server_that_can_be_killed() {
    common::process::serve_when_asked();
}

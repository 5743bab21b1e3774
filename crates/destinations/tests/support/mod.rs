//! What the tests of all destinations use.
#![allow(dead_code, reason = "each test file uses its own part")]

pub mod http_door;
pub mod radosgw;
pub mod stand_in;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use forebay_destinations::{Access, open};
use forebay_mover::custody::{Answer, Failure, SourceAnswer};
use forebay_mover::endpoint::{Content, Destination, Moved, Sending};
use forebay_mover::{Name, Summer, Sums};

/// Bytes that no other seed gives.
pub fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
    .take(count)
    .collect()
}

pub fn sums(bytes: &[u8]) -> Sums {
    let mut summer = Summer::default();
    summer.update(bytes);
    summer.sums()
}

pub fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

/// Bytes in memory as a source; after some of them something may happen.
pub struct Bytes<'a> {
    pub bytes: &'a [u8],
    pub block_bytes: usize,
    pub then: Option<(usize, Box<dyn FnMut() + 'a>)>,
    block_at_bytes: usize,
    given_bytes: usize,
}

impl<'a> Bytes<'a> {
    pub fn of(bytes: &'a [u8]) -> Bytes<'a> {
        Bytes { bytes, block_bytes: 256 << 10, then: None, block_at_bytes: 0, given_bytes: 0 }
    }
}

impl Content for Bytes<'_> {
    fn refill(&mut self) -> Result<bool, SourceAnswer> {
        if let Some((at, then)) = &mut self.then
            && self.given_bytes >= *at
        {
            then();
            self.then = None;
        }
        self.block_at_bytes = self.given_bytes;
        self.given_bytes += self.block_bytes.min(self.bytes.len() - self.given_bytes);
        Ok(!self.block().is_empty())
    }

    fn block(&self) -> &[u8] {
        &self.bytes[self.block_at_bytes..self.given_bytes]
    }
}

/// Counts what is moved; a mover that ends after so many bytes.
pub struct Counter {
    pub bytes: AtomicU64,
    pub ends_after_bytes: u64,
}

impl Counter {
    pub fn new() -> Counter {
        Counter { bytes: AtomicU64::new(0), ends_after_bytes: u64::MAX }
    }
}

impl Moved for Counter {
    fn moved(&self, bytes: u64) -> bool {
        self.bytes.fetch_add(bytes, SeqCst) + bytes < self.ends_after_bytes
    }
}

pub fn destination(url: &str, access: &Access) -> Arc<dyn Destination> {
    open(&url.parse().expect("an address"), access).expect("opened")
}

/// Sends under a temporary name.
pub fn send(destination: &dyn Destination, temporary: &str, last: &str, bytes: &[u8]) -> Answer {
    send_as(destination, temporary, last, bytes.len() as u64, Bytes::of(bytes))
}

pub fn send_as(destination: &dyn Destination, temporary: &str, last: &str, bytes: u64, mut content: Bytes) -> Answer {
    let (temporary, last) = (name(temporary), name(last));
    destination.send(&Sending { temporary: &temporary, last: &last, bytes }, &mut content, &Counter::new())
}

pub fn ask(destination: &dyn Destination, of: &str) -> Answer {
    destination.ask(&name(of), &Counter::new())
}

/// That a file is there, by what the destination says of it.
#[track_caller]
pub fn assert_holds(destination: &dyn Destination, of: &str, bytes: &[u8]) {
    match ask(destination, of) {
        Answer::Told(Some(told)) => assert!(told.proves(&sums(bytes)), "{of}: {told}; expected {}", sums(bytes)),
        answer => panic!("{of}: {answer:?}"),
    }
}

#[track_caller]
pub fn assert_refused(answer: Answer, words: &[&str]) {
    match &answer {
        Answer::Failed(failure @ Failure::Refused(_)) => assert_says(failure, words),
        answer => panic!("{answer:?} is no refusal"),
    }
}

#[track_caller]
pub fn assert_not_now(answer: Answer, words: &[&str]) {
    match &answer {
        Answer::Failed(failure @ Failure::NotNow(_)) => assert_says(failure, words),
        answer => panic!("{answer:?} says nothing of later"),
    }
}

#[track_caller]
pub fn assert_unknown(answer: Answer, words: &[&str]) {
    match &answer {
        Answer::Failed(failure @ Failure::Unknown(_)) => assert_says(failure, words),
        answer => panic!("{answer:?} is known"),
    }
}

#[track_caller]
fn assert_says(failure: &Failure, words: &[&str]) {
    for word in words {
        assert!(failure.words().contains(word), "{word:?} is not in {failure:?}");
    }
}

/// The contract of a destination, whatever it is: each step, each twice, with names and sizes of all kinds.
pub fn keep_the_contract(destination: &dyn Destination, sizes: &[usize]) {
    let names =
        ["a.raw", "run 7/ü/b c.raw", "run 7/x%41+&;='()!*,@$#~[1]{2}^`|<>\"\\.raw", "deep/er/and/deep/er/c.raw"];
    for (at, last) in names.iter().enumerate() {
        let bytes = noise(at as u64, sizes[at % sizes.len()]);
        let other = noise(at as u64 + 100, sizes[at % sizes.len()] / 2 + 1);
        let place = name(last);
        let temporary =
            |attempt: u32| place.beside(&format!(".forebay-{at}-{attempt}.part")).expect("a name").to_string();
        let (one, two) = (temporary(1), temporary(2));
        assert_eq!(ask(destination, last), Answer::Told(None), "{last}");
        assert_eq!(ask(destination, &one), Answer::Told(None), "{last}");
        assert_eq!(send(destination, &one, last, &bytes), Answer::Sent(sums(&bytes)), "{last}");
        assert_eq!(ask(destination, last), Answer::Told(None), "{last}: nothing has its name before it is given");
        assert_holds(destination, &one, &bytes);
        assert_eq!(destination.rename(&name(&one), &place), Answer::Done, "{last}");
        assert_holds(destination, last, &bytes);
        assert_eq!(ask(destination, &one), Answer::Told(None), "{last}");

        assert_eq!(send(destination, &two, last, &other), Answer::Sent(sums(&other)), "{last}");
        assert_eq!(destination.rename(&name(&two), &place), Answer::Taken, "{last}");
        assert_holds(destination, last, &bytes);
        assert_holds(destination, &two, &other);
        assert_eq!(destination.replace(&name(&two), &place), Answer::Done, "{last}");
        assert_holds(destination, last, &other);
        assert_eq!(ask(destination, &two), Answer::Told(None), "{last}");

        let three = temporary(3);
        assert_eq!(send(destination, &three, last, &bytes), Answer::Sent(sums(&bytes)), "{last}");
        for _ in 0..2 {
            assert_eq!(destination.remove(&name(&three)), Answer::Done, "{last}");
            assert_eq!(ask(destination, &three), Answer::Told(None), "{last}");
        }
        assert_holds(destination, last, &other);
        // What was taken away cannot get a name, and nothing has it then.
        let gone = destination.replace(&name(&three), &place.beside("gone").expect("a name"));
        assert_unknown(gone, &[]);
        assert_eq!(ask(destination, place.beside("gone").expect("a name").as_str()), Answer::Told(None), "{last}");
    }
}

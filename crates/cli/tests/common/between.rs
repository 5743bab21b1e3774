//! What lies between a program and a server, and does something to what passes.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// What is done to what passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// Another ETag is told than the server does, of what has so many bytes.
    OtherEtag(usize),
    /// Answers are told this much later.
    Late(Duration),
    /// Nothing is told any more.
    Hangs,
    /// After so many bytes of what is sent every connection ends.
    CutsAfter(usize),
    /// The first request with these bytes is passed on, its answer is not: the connection ends, and nobody gets another one until [`Between::go_on`].
    CutsAnswerTo(&'static [u8]),
}

/// How far the one request is whose answer is cut.
const AWAITED: u8 = 0;
const SENT: u8 = 1;
const CUT: u8 = 2;
const OVER: u8 = 3;

/// Listens until the test ends.
pub struct Between {
    /// Where.
    pub port: u16,
    cut: Arc<AtomicU8>,
}

impl Between {
    /// In front of a port of this machine.
    pub fn start(port: u16, passing: Passing) -> Between {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let own = listener.local_addr().expect("it listens").port();
        let sent = Arc::new(AtomicUsize::new(0));
        let cut = Arc::new(AtomicU8::new(AWAITED));
        let all_cut = Arc::clone(&cut);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                while all_cut.load(Relaxed) == CUT {
                    std::thread::sleep(Duration::from_millis(10));
                }
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                let (from, to) = (client.try_clone().expect("another"), server.try_clone().expect("another"));
                let (sent, cut) = (Arc::clone(&sent), Arc::clone(&all_cut));
                let cut_there = Arc::clone(&cut);
                std::thread::spawn(move || pass(from, to, |bytes| passing.sent(bytes, &sent, &cut)));
                std::thread::spawn(move || pass(server, client, |bytes| passing.told(bytes, &cut_there)));
            }
        });
        Between { port: own, cut }
    }

    /// Waits until an answer was cut.
    pub fn wait_for_cut(&self) {
        while self.cut.load(Relaxed) != CUT {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// From now on all passes.
    pub fn go_on(&self) {
        self.cut.store(OVER, Relaxed);
    }
}

impl Passing {
    /// Whether it passes.
    fn sent(self, bytes: &[u8], all: &AtomicUsize, cut: &AtomicU8) -> bool {
        if let Passing::CutsAnswerTo(text) = self
            && bytes.windows(text.len()).any(|window| window == text)
        {
            let _ = cut.compare_exchange(AWAITED, SENT, Relaxed, Relaxed);
        }
        let before = all.fetch_add(bytes.len(), Relaxed);
        !matches!(self, Passing::CutsAfter(most) if before + bytes.len() > most)
    }

    fn told(self, bytes: &mut [u8], cut: &AtomicU8) -> bool {
        match self {
            Passing::OtherEtag(count) => {
                const BEFORE: &[u8] = b"\r\netag: \"";
                let lower = bytes.to_ascii_lowercase();
                let find = |text: &[u8]| lower.windows(text.len()).position(|window| window == text);
                let is_of = find(format!("\r\ncontent-length: {count}\r\n").as_bytes());
                if let (Some(at), Some(_)) = (find(BEFORE), is_of) {
                    let digit = &mut bytes[at + BEFORE.len()];
                    *digit = if *digit == b'0' { b'1' } else { b'0' };
                }
            }
            Passing::Late(after) => std::thread::sleep(after),
            Passing::Hangs => loop {
                std::thread::park();
            },
            Passing::CutsAnswerTo(_) => return cut.compare_exchange(SENT, CUT, Relaxed, Relaxed).is_err(),
            Passing::CutsAfter(_) => {}
        }
        true
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, does: impl Fn(&mut [u8]) -> bool) {
    let mut block = vec![0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut block) {
        if !does(&mut block[..read]) || to.write_all(&block[..read]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

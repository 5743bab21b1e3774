//! The ceiling of the network path on this machine: the same copies, sums and parity from a socket to the drives, and nothing else. No index,
//! no tables, no request is answered, nothing is batched or retried.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_erasure::Codec;
use forebay_media::{
    Access, AlignedBuffer, DirectIo, DriveFile, Media, MediaConfig, Operation, OperationId, create_zeroed, open_media,
};
use forebay_types::{DriveNumber, crc32c};

/// Bytes of a unit, of what lies on each drive at once, and how many of those are on their way: as the store has them.
const UNIT: usize = 32 << 10;
const FLUSH: usize = 1 << 20;
const DEPTH: usize = 4;

/// Fragments of one read from the socket.
const READ_FRAGMENTS: usize = 24;

type Stripe = Vec<Arc<AlignedBuffer>>;

/// Bytes of payload a second from a client over loopback to `data` + `parity` files on their file system.
pub fn bytes_per_s(directory: &Path, data: usize, parity: usize, fragment_bytes: usize, count: u64) -> f64 {
    let directory = tempfile::TempDir::new_in(directory).expect("a directory can be made");
    let drive_bytes = (count * fragment_bytes as u64 / data as u64).next_multiple_of(FLUSH as u64) + FLUSH as u64;
    let drives: Vec<_> = (0..data + parity)
        .map(|number| {
            let path = directory.path().join(number.to_string());
            create_zeroed(&path, drive_bytes, &mut |_| {}).expect("a file can be made");
            let file = DriveFile::open(&path, DirectIo::Auto, Access::Exclusive).expect("it can be opened");
            (DriveNumber(number as u16), Some(Arc::new(file)))
        })
        .collect();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let client =
        std::thread::spawn(move || send(TcpStream::connect(address).expect("it listens"), fragment_bytes, count));
    let (socket, _) = listener.accept().expect("the client connects");
    let media = open_media(&drives, &MediaConfig::default()).expect("the files can be written");
    let start = Instant::now();
    Receiver::new(media, data, parity).run(socket, fragment_bytes, count);
    let seconds = start.elapsed().as_secs_f64();
    client.join().expect("the client ends");
    (count * fragment_bytes as u64) as f64 / seconds
}

fn send(mut socket: TcpStream, fragment_bytes: usize, count: u64) {
    let payload: Vec<u8> = (0..fragment_bytes).map(|i| (i * 131 + i / 251) as u8).collect();
    let batch = payload.repeat(READ_FRAGMENTS);
    let mut left = count as usize;
    while left > 0 {
        let fragments = left.min(READ_FRAGMENTS);
        let batch = &batch[..fragments * fragment_bytes];
        let sum: u32 = batch.chunks(fragment_bytes).map(crc32c).fold(0, |a, b| a ^ b);
        std::hint::black_box(sum);
        socket.write_all(batch).expect("the other side reads");
        left -= fragments;
    }
}

struct Receiver {
    media: Box<dyn Media + Send>,
    codec: Codec,
    data: usize,
    spare: Vec<Stripe>,
    filling: Stripe,
    filled: usize,
    flushes: u64,
    in_flight: Vec<(u64, usize, Stripe)>,
}

impl Receiver {
    fn new(media: Box<dyn Media + Send>, data: usize, parity: usize) -> Self {
        let stripe = || -> Stripe { (0..data + parity).map(|_| Arc::new(AlignedBuffer::zeroed(FLUSH))).collect() };
        let codec = Codec::new(data as u8, parity as u8).expect("a sound width");
        let spare = (0..DEPTH).map(|_| stripe()).collect();
        Receiver { media, codec, data, spare, filling: stripe(), filled: 0, flushes: 0, in_flight: Vec::new() }
    }

    fn run(&mut self, mut socket: TcpStream, fragment_bytes: usize, count: u64) {
        let mut staging = vec![0; READ_FRAGMENTS * fragment_bytes];
        let mut left = count as usize;
        while left > 0 {
            let fragments = left.min(READ_FRAGMENTS);
            let bytes = &mut staging[..fragments * fragment_bytes];
            socket.read_exact(bytes).expect("the other side writes");
            for fragment in bytes.chunks(fragment_bytes) {
                std::hint::black_box(crc32c(fragment));
                self.add(fragment);
            }
            left -= fragments;
        }
        self.flush();
        while !self.in_flight.is_empty() {
            self.take_completions();
        }
    }

    fn add(&mut self, mut fragment: &[u8]) {
        while !fragment.is_empty() {
            let (row, at) = (self.filled / (self.data * UNIT), self.filled % (self.data * UNIT));
            let (shard, offset) = (at / UNIT, at % UNIT);
            let bytes = fragment.len().min(UNIT - offset);
            let buffer = Arc::get_mut(&mut self.filling[shard]).expect("nobody else has it");
            buffer[row * UNIT + offset..][..bytes].copy_from_slice(&fragment[..bytes]);
            fragment = &fragment[bytes..];
            self.filled += bytes;
            if self.filled.is_multiple_of(self.data * UNIT) {
                self.encode(row);
            }
            if self.filled == self.data * FLUSH {
                self.flush();
            }
        }
    }

    fn encode(&mut self, row: usize) {
        let range = row * UNIT..(row + 1) * UNIT;
        let (data, parity) = self.filling.split_at_mut(self.data);
        let data: Vec<&[u8]> = data.iter().map(|unit| &unit[range.clone()]).collect();
        let mut parity: Vec<&mut [u8]> =
            parity.iter_mut().map(|unit| &mut Arc::get_mut(unit).expect("nobody else has it")[range.clone()]).collect();
        self.codec.encode(&data, &mut parity);
    }

    fn flush(&mut self) {
        while self.spare.is_empty() {
            self.take_completions();
        }
        let stripe = std::mem::replace(&mut self.filling, self.spare.pop().expect("looked at just now"));
        let offset_bytes = self.flushes * FLUSH as u64;
        for (shard, buffer) in stripe.iter().enumerate() {
            let drive = DriveNumber(shard as u16);
            let write = Operation::Write { drive, offset_bytes, buffer: Arc::clone(buffer), bytes: FLUSH };
            self.media.submit(OperationId(self.flushes), write);
        }
        self.media.kick();
        self.in_flight.push((self.flushes, stripe.len(), stripe));
        (self.flushes, self.filled) = (self.flushes + 1, 0);
    }

    fn take_completions(&mut self) {
        let mut completions = Vec::new();
        self.media.wait(Duration::from_secs(60), &mut completions);
        for completion in completions {
            completion.result.expect("the file can be written");
            let flight = self.in_flight.iter_mut().find(|(flush, ..)| *flush == completion.id.0).expect("it was sent");
            flight.1 -= 1;
        }
        while let Some(at) = self.in_flight.iter().position(|(_, pending, _)| *pending == 0) {
            self.spare.push(self.in_flight.swap_remove(at).2);
        }
    }
}

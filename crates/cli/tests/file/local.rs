//! A client on the machine of its server: what it shares with it, and what it does when there is nothing to share.

use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;

use forebay_client::ClientConfig;
use forebay_client::files::{Files, ReadOptions, WriteOptions};
use rustix::net::sockopt;

use crate::common::{Drives, Server, noise};

const BYTES: usize = 12 << 20;

/// How often the server has memory of clients open.
fn shared(server: &Server) -> usize {
    let open = fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("the server runs");
    // One that is closed meanwhile is none.
    let targets = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    targets.filter(|target| target.starts_with("/memfd:forebay-client (deleted)")).count()
}

/// Whether servers here have a socket for clients on this machine: where one may hold as many bytes as they want it to.
fn is_offered() -> bool {
    const BYTES: usize = 1 << 20;
    let (socket, _) = UnixStream::pair().expect("a pair");
    let is_offered = sockopt::set_socket_send_buffer_size_force(&socket, BYTES).is_ok()
        || sockopt::set_socket_send_buffer_size(&socket, BYTES).is_ok()
            && sockopt::socket_send_buffer_size(&socket).is_ok_and(|granted| granted >= 2 * BYTES);
    if !is_offered {
        eprintln!("skipped: net.core.wmem_max is less than {BYTES} here, and this process may not go beyond it");
    }
    is_offered
}

fn connect(server: &Server, local: bool) -> Files {
    Files::connect(ClientConfig { local, ..ClientConfig::new(server.address.clone(), "test") }).expect("connects")
}

/// Writes a file in pieces of these sizes, one after the other, and reads it back by another client.
fn write_and_read(server: &Server, files: &Files, name: &str, sizes: &[usize]) {
    let bytes = noise(name.len() as u64, BYTES);
    let mut writer = files.create(name, &WriteOptions::default()).expect("made");
    let (mut rest, mut sizes) = (&bytes[..], sizes.iter().cycle());
    while !rest.is_empty() {
        let (now, later) = rest.split_at(rest.len().min(*sizes.next().expect("they go round")));
        writer.write(now).expect("taken");
        rest = later;
    }
    writer.close().expect("durable");
    assert!(read(&connect(server, false), name) == bytes, "{name} is not what was written");
}

fn read(files: &Files, name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    files.open_read(name, &ReadOptions::default()).expect("there").read_to_end(&mut bytes).expect("read");
    bytes
}

#[test]
fn pieces_of_files_lie_in_memory_that_the_server_shares_and_are_taken_from_there() {
    if !is_offered() {
        return;
    }
    let drives = Drives::five();
    let server = drives.serve();
    let by_network = connect(&server, false);
    write_and_read(&server, &by_network, "/by-network", &[1 << 20]);
    assert_eq!(shared(&server), 0);
    let files = connect(&server, true);
    files.make_directory("/names", &WriteOptions::default().owner).expect("made");
    assert_eq!(shared(&server), 0, "who writes nothing shares nothing");
    write_and_read(&server, &files, "/whole-pieces", &[1 << 20]);
    assert_eq!(shared(&server), 1, "one connection wrote");
    write_and_read(&server, &files, "/odd-ones", &[1, 300_000, 77, 1_048_575, 4096]);
    assert!((1..=2).contains(&shared(&server)), "a connection shares it once");
    drop(files);
    // The server learns of it with its next turn.
    while shared(&server) > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn after_a_restart_of_the_server_memory_is_shared_again_and_nothing_is_lost() {
    if !is_offered() {
        return;
    }
    let drives = Drives::five();
    let server = drives.serve();
    let address = server.address.clone();
    let files = connect(&server, true);
    write_and_read(&server, &files, "/before", &[1 << 20]);
    assert_eq!(shared(&server), 1);
    let bytes = noise(5, BYTES);
    let mut writer = files.create("/over-it", &WriteOptions::default()).expect("made");
    writer.write(&bytes[..BYTES / 2]).expect("taken");
    drop(server);
    let server = Server::start_at(&address, &[], &drives.paths).expect("it starts again");
    writer.write(&bytes[BYTES / 2..]).expect("taken");
    writer.close().expect("durable");
    assert!(read(&files, "/over-it") == bytes);
    assert_eq!(shared(&server), 1, "the new server is met by the network, which tells of its socket");
}

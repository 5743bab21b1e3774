//! Sockets for clients on this machine that do not serve.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_client::files::{Files, ReadOptions};
use forebay_protocol::local_socket_name;

use super::peer::{LANES, Peer};
use super::{content, options};

/// Numbers that no two tests have, and no server takes by chance.
fn number(test: u64) -> u64 {
    u64::from(std::process::id()) << 8 | test
}

fn write_and_read(files: &Files) {
    for file in 0..3 {
        let (name, bytes) = (format!("/file{file}"), content(file, 500_000));
        let mut writer = files.create(&name, &options()).expect("made");
        writer.write(&bytes).expect("taken");
        writer.close().expect("durable");
        let mut read = vec![0; bytes.len()];
        assert_eq!(
            files.open_read(&name, &ReadOptions::default()).expect("there").read_at(0, &mut read).expect("read"),
            500_000
        );
        assert!(read == bytes);
    }
}

#[test]
fn a_socket_that_is_not_there_is_passed_by() {
    let peer = Peer::start();
    peer.state().local = number(1);
    write_and_read(&peer.connect());
}

#[test]
fn a_socket_that_serves_nobody_is_given_up() {
    let peer = Peer::start();
    peer.state().local = number(2);
    let address = SocketAddr::from_abstract_name(local_socket_name(peer.port(), number(2))).expect("a name");
    let listener = UnixListener::bind_addr(&address).expect("it is free");
    let met = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // What ends this is the last connection, of the test itself.
            while let Ok((socket, _)) = listener.accept()
                && met.load(Ordering::SeqCst) < usize::MAX / 2
            {
                met.fetch_add(1, Ordering::SeqCst);
                drop(socket);
            }
        });
        write_and_read(&peer.connect());
        let met_by_client = met.swap(usize::MAX / 2, Ordering::SeqCst);
        drop(UnixStream::connect_addr(&address).expect("it listens"));
        assert!((1..=usize::from(LANES)).contains(&met_by_client), "it was tried {met_by_client} times");
    });
}

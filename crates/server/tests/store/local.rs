//! The socket for clients on this machine, without a client's manners.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

use forebay_client::Class;
use forebay_protocol::{
    Frame, FrameBuffer, Hello, HelloReply, LANE_CONTROL, Message, PROTOCOL_VERSION, Part, Ping, local_socket_name,
};
use forebay_types::FragmentId;

use super::world::{Raw, World};

fn hello(lane: u16) -> Hello {
    Hello { protocol_version: PROTOCOL_VERSION, lane, class: Class::Readout, name: "raw".to_owned() }
}

/// A connection to lane 0 by this socket; `None`: the server has none.
fn connect(world: &World) -> Option<UnixStream> {
    let mut raw = Raw::new(world.address());
    raw.ask(1, &hello(LANE_CONTROL));
    let HelloReply { local, .. } = raw.receive().expect("greeted").message();
    if local == 0 {
        eprintln!("skipped: net.core.wmem_max is less than 1 MiB here, and this process may not go beyond it");
        return None;
    }
    let address = SocketAddr::from_abstract_name(local_socket_name(world.address().port(), local)).expect("a name");
    Some(UnixStream::connect_addr(&address).expect("it is there"))
}

fn frame(message: &impl Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(1, &mut bytes);
    [&Part::Bytes(bytes.len() as u32).encode()[..], &bytes].concat()
}

/// Reads frames until there are so many, or the server has closed the connection; how many came.
fn frames(socket: &mut UnixStream, most: usize) -> usize {
    let (mut buffer, mut count) = (FrameBuffer::new(), 0);
    while count < most {
        if let Some(Frame { .. }) = buffer.next_frame().expect("sound frames") {
            count += 1;
            continue;
        }
        match socket.read(buffer.spare(4096)) {
            Ok(bytes) if bytes > 0 => buffer.filled(bytes),
            _ => break,
        }
    }
    count
}

#[test]
fn a_client_on_this_machine_is_served_and_one_that_sends_nonsense_is_cut_off_alone() {
    let world = World::new(1);
    let Some(mut good) = connect(&world) else { return };
    good.write_all(&frame(&hello(0))).expect("sent");
    good.write_all(&frame(&Ping)).expect("sent");
    assert_eq!(frames(&mut good, 2), 2, "the greeting and the answer");

    let nonsense: [&[u8]; 4] = [
        &[0xFF; 40],
        &Part::Memory { offset: 0, bytes: 1000 }.encode(),
        &Part::Descriptor.encode(),
        b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
    ];
    for bytes in nonsense {
        // At once, and when a lane has it.
        let mut early = connect(&world).expect("as before");
        early.write_all(bytes).expect("sent");
        assert_eq!(frames(&mut early, 1), 0);
        let mut late = connect(&world).expect("as before");
        late.write_all(&frame(&hello(0))).expect("sent");
        assert_eq!(frames(&mut late, 1), 1, "greeted");
        late.write_all(bytes).expect("sent");
        assert_eq!(frames(&mut late, 1), 0, "cut off");
    }
    good.write_all(&frame(&Ping)).expect("sent");
    assert_eq!(frames(&mut good, 1), 1, "the others go on");
    let mut client = world.client(Class::Readout);
    client.put(FragmentId::new(1, 1, 1), 1, b"a fragment").expect("taken");
    client.flush().expect("durable");
    assert_eq!(client.get(FragmentId::new(1, 1, 1)).expect("read"), b"a fragment");
}

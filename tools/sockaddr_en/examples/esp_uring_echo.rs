// SPDX-License-Identifier: MIT OR Apache-2.0

//! An echo server and its client over ESP with io_uring: accepting, connecting, sending,
//! receiving and ending all go through one ring.
//!
//! ```sh
//! esp_uring_echo serve '*%eth0:2805'
//! esp_uring_echo ask 02:00:00:00:00:01%eth0:2805 100 64
//! ```
//!
//! The client opens that many connections at once, exchanges that many messages of 1000 bytes over
//! each, and compares what comes back.

use std::env;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process;

use io_uring::{cqueue, opcode, squeue, types::Fd, IoUring};
use sockaddr_en::{Address, EspListener, EspSocket, SockaddrEn, ToAddress};

const MESSAGE: usize = 1000;

fn main() {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    // Not dropped before the process ends: after a failure the ring may still use its buffers.
    let mut connections = Connections::default();
    let done = match arguments[..] {
        ["serve", address] => serve(&mut connections, address),
        ["ask", address, count, messages] => match (count.parse(), messages.parse()) {
            (Ok(count), Ok(messages)) => ask(&mut connections, address, count, messages),
            _ => usage(),
        },
        _ => usage(),
    };
    process::exit(match done {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("esp_uring_echo: {error}");
            1
        }
    });
}

fn usage() -> ! {
    eprintln!("usage: esp_uring_echo serve ADDRESS | ask ADDRESS CONNECTIONS MESSAGES");
    process::exit(2)
}

/// What a completion is of.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Operation {
    Accept,
    Connect,
    Send,
    Receive,
    Shutdown,
}

impl Operation {
    const ALL: [Self; 5] = [
        Self::Accept,
        Self::Connect,
        Self::Send,
        Self::Receive,
        Self::Shutdown,
    ];
}

/// A connection, of which the ring has one operation at a time.
struct Connection {
    fd: OwnedFd,
    /// The peer, for the ring to read.
    peer: Box<SockaddrEn>,
    buffer: Box<[u8; MESSAGE]>,
    /// Bytes of `buffer` in use.
    length: usize,
    /// Bytes of those sent or, by the client, received.
    done: usize,
    /// Messages the client has exchanged.
    messages: u32,
}

impl Connection {
    fn new(fd: OwnedFd, peer: SockaddrEn) -> Self {
        Self {
            fd,
            peer: Box::new(peer),
            buffer: Box::new([0; MESSAGE]),
            length: 0,
            done: 0,
            messages: 0,
        }
    }
}

/// Those that are open, each in the place that its operations name.
#[derive(Default)]
struct Connections(Vec<Option<Connection>>);

impl Connections {
    fn add(&mut self, connection: Connection) -> usize {
        let free = self.0.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.0.push(None);
            self.0.len() - 1
        });
        self.0[place] = Some(connection);
        place
    }

    fn get(&mut self, place: usize) -> &mut Connection {
        self.0[place].as_mut().expect("open while the ring has it")
    }
}

/// The ring, and how entries get into it.
struct Ring(IoUring);

impl Ring {
    fn new() -> io::Result<Self> {
        IoUring::new(256).map(Self)
    }

    /// Queues `entry`, an operation of the connection at `place`.
    ///
    /// # Safety
    ///
    /// The memory that the entry names must stay where it is until the operation has completed.
    unsafe fn push(
        &mut self,
        entry: squeue::Entry,
        operation: Operation,
        place: usize,
    ) -> io::Result<()> {
        let entry = entry.user_data(((place as u64) << 8) | operation as u64);
        // SAFETY: the caller's promise.
        while unsafe { self.0.submission().push(&entry) }.is_err() {
            // The queue is full: the kernel takes what is in it.
            self.0.submit()?;
        }
        Ok(())
    }

    fn accept(&mut self, listener: &EspListener) -> io::Result<()> {
        let entry = opcode::Accept::new(
            Fd(listener.as_raw_fd()),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
        .flags(libc::SOCK_CLOEXEC)
        .build();
        // SAFETY: the entry names no memory.
        unsafe { self.push(entry, Operation::Accept, 0) }
    }

    fn connect(&mut self, connection: &mut Connection, place: usize) -> io::Result<()> {
        let peer = std::ptr::from_ref::<SockaddrEn>(&connection.peer);
        let length = size_of::<SockaddrEn>() as libc::socklen_t;
        let entry =
            opcode::Connect::new(Fd(connection.fd.as_raw_fd()), peer.cast(), length).build();
        // SAFETY: the address is in a box of the connection, which stays in its place until it is
        // taken out, and that happens on a completion only.
        unsafe { self.push(entry, Operation::Connect, place) }
    }

    /// Sends what of the buffer has not been sent.
    fn send(&mut self, connection: &mut Connection, place: usize) -> io::Result<()> {
        let rest = &connection.buffer[connection.done..connection.length];
        let entry = opcode::Send::new(
            Fd(connection.fd.as_raw_fd()),
            rest.as_ptr(),
            rest.len() as u32,
        )
        .flags(libc::MSG_NOSIGNAL)
        .build();
        // SAFETY: as in `connect`; the buffer is not touched before the completion.
        unsafe { self.push(entry, Operation::Send, place) }
    }

    /// Receives into the buffer behind what it has.
    fn receive(&mut self, connection: &mut Connection, place: usize) -> io::Result<()> {
        let room = &mut connection.buffer[connection.done..];
        let entry = opcode::Recv::new(
            Fd(connection.fd.as_raw_fd()),
            room.as_mut_ptr(),
            room.len() as u32,
        )
        .build();
        // SAFETY: as in `send`.
        unsafe { self.push(entry, Operation::Receive, place) }
    }

    fn shutdown(&mut self, connection: &mut Connection, place: usize) -> io::Result<()> {
        let entry = opcode::Shutdown::new(Fd(connection.fd.as_raw_fd()), libc::SHUT_WR).build();
        // SAFETY: the entry names no memory.
        unsafe { self.push(entry, Operation::Shutdown, place) }
    }

    /// Waits for a completion and returns all that have come.
    fn completed(&mut self) -> io::Result<Vec<cqueue::Entry>> {
        match self.0.submit_and_wait(1) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        Ok(self.0.completion().collect())
    }
}

/// The operation, the place, and the result of a completion.
fn read(entry: &cqueue::Entry) -> (Operation, usize, io::Result<usize>) {
    let data = entry.user_data();
    let result =
        usize::try_from(entry.result()).map_err(|_| io::Error::from_raw_os_error(-entry.result()));
    let operation = Operation::ALL[(data & 0xff) as usize];
    (operation, (data >> 8) as usize, result)
}

fn serve(connections: &mut Connections, address: &str) -> io::Result<()> {
    let listener = EspListener::bind(address)?;
    eprintln!("listening on {}", listener.local_addr()?);
    let mut ring = Ring::new()?;
    ring.accept(&listener)?;
    loop {
        for entry in ring.completed()? {
            match read(&entry) {
                (Operation::Accept, _, accepted) => {
                    let fd = accepted? as i32;
                    // SAFETY: the ring just made this descriptor, and nothing else owns it.
                    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
                    let place = connections.add(Connection::new(fd, SockaddrEn::default()));
                    ring.receive(connections.get(place), place)?;
                    ring.accept(&listener)?;
                }
                (Operation::Receive, place, Ok(length)) if length > 0 => {
                    let connection = connections.get(place);
                    connection.length = length;
                    ring.send(connection, place)?;
                }
                (Operation::Send, place, Ok(length)) => {
                    let connection = connections.get(place);
                    connection.done += length;
                    if connection.done < connection.length {
                        ring.send(connection, place)?;
                    } else {
                        connection.done = 0;
                        ring.receive(connection, place)?;
                    }
                }
                // The peer has ended its half, or the connection has failed.
                (_, place, result) => {
                    connections.0[place] = None;
                    if let Err(error) = result {
                        eprintln!("a connection: {error}");
                    }
                }
            }
        }
    }
}

/// The byte that fills a message.
fn filling(place: usize, messages: u32) -> u8 {
    (place as u32).wrapping_mul(31).wrapping_add(messages) as u8
}

fn ask(connections: &mut Connections, address: &str, count: u32, messages: u32) -> io::Result<()> {
    let peer: Address = address.to_address()?;
    let mut ring = Ring::new()?;
    for _ in 0..count {
        let socket = EspSocket::new()?;
        let connection = Connection::new(socket.into(), peer.to_raw());
        let place = connections.add(connection);
        ring.connect(connections.get(place), place)?;
    }
    let mut open = count;
    while open > 0 {
        for entry in ring.completed()? {
            let (operation, place, result) = read(&entry);
            let length = result?;
            let connection = connections.get(place);
            let filling = filling(place, connection.messages);
            match operation {
                Operation::Send => {
                    connection.done += length;
                    if connection.done < MESSAGE {
                        ring.send(connection, place)?;
                        continue;
                    }
                    // What comes back is written over what was sent.
                    connection.buffer.fill(!filling);
                    connection.done = 0;
                    ring.receive(connection, place)?;
                    continue;
                }
                Operation::Receive if connection.messages == messages => {
                    if length > 0 {
                        return Err(io::Error::other("more came back than was sent"));
                    }
                    connections.0[place] = None;
                    open -= 1;
                    continue;
                }
                Operation::Receive => {
                    if length == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    connection.done += length;
                    if connection.done < MESSAGE {
                        ring.receive(connection, place)?;
                        continue;
                    }
                    if connection.buffer.iter().any(|byte| *byte != filling) {
                        return Err(io::Error::other("not what was sent"));
                    }
                    connection.messages += 1;
                }
                Operation::Shutdown => {
                    connection.done = 0;
                    ring.receive(connection, place)?;
                    continue;
                }
                Operation::Connect | Operation::Accept => {}
            }
            // The next message, or the end.
            if connection.messages < messages {
                connection
                    .buffer
                    .fill(self::filling(place, connection.messages));
                (connection.done, connection.length) = (0, MESSAGE);
                ring.send(connection, place)?;
            } else {
                ring.shutdown(connection, place)?;
            }
        }
    }
    println!("{count} connections exchanged {messages} messages each");
    Ok(())
}

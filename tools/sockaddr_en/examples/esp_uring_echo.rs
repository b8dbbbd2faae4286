// SPDX-License-Identifier: MIT OR Apache-2.0

//! An echo server and its client over ESP with io_uring: one ring accepts, connects, sends,
//! receives and shuts down.
//!
//! ```sh
//! esp_uring_echo serve '*%eth0:2805'
//! esp_uring_echo ask 02:00:00:00:00:01%eth0:2805 100 64
//! ```
//!
//! The client opens 100 connections at once, exchanges 64 messages of 1000 bytes over each, and
//! compares the echo.

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
    // After a failure the ring may still use the connections' buffers, so the connections are
    // dropped only when the process ends.
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

/// The operation that a completion belongs to.
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

/// A connection. At most one of its operations is in the ring at a time.
struct Connection {
    fd: OwnedFd,
    /// The peer's address, which the ring reads.
    peer: Box<SockaddrEn>,
    buffer: Box<[u8; MESSAGE]>,
    /// Number of bytes of `buffer` in use.
    length: usize,
    /// Number of bytes of `buffer` that were sent or, while the client receives, received.
    done: usize,
    /// Number of messages that the client has exchanged.
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

/// The open connections, each at the index that its operations carry.
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

/// The ring, with methods to queue its operations.
struct Ring(IoUring);

impl Ring {
    fn new() -> io::Result<Self> {
        IoUring::new(256).map(Self)
    }

    /// Queues `entry`, an operation of the connection at `place`.
    ///
    /// # Safety
    ///
    /// The memory that the entry points to must not move or be freed until the operation has
    /// completed.
    unsafe fn push(
        &mut self,
        entry: squeue::Entry,
        operation: Operation,
        place: usize,
    ) -> io::Result<()> {
        let entry = entry.user_data(((place as u64) << 8) | operation as u64);
        // SAFETY: by the contract of this function, the memory to which `entry` points is neither
        // moved nor freed until the operation has completed.
        while unsafe { self.0.submission().push(&entry) }.is_err() {
            // The queue is full, so its entries are handed to the kernel.
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
        // SAFETY: the address is in a box of the connection, and only the completion of this
        // operation removes the connection from `Connections`.
        unsafe { self.push(entry, Operation::Connect, place) }
    }

    /// Sends the rest of the buffer.
    fn send(&mut self, connection: &mut Connection, place: usize) -> io::Result<()> {
        let rest = &connection.buffer[connection.done..connection.length];
        let entry = opcode::Send::new(
            Fd(connection.fd.as_raw_fd()),
            rest.as_ptr(),
            rest.len() as u32,
        )
        .flags(libc::MSG_NOSIGNAL)
        .build();
        // SAFETY: the buffer is in a box of the connection. Until the completion of this operation,
        // nothing else touches the buffer or removes the connection.
        unsafe { self.push(entry, Operation::Send, place) }
    }

    /// Receives into the free part of the buffer.
    fn receive(&mut self, connection: &mut Connection, place: usize) -> io::Result<()> {
        let room = &mut connection.buffer[connection.done..];
        let entry = opcode::Recv::new(
            Fd(connection.fd.as_raw_fd()),
            room.as_mut_ptr(),
            room.len() as u32,
        )
        .build();
        // SAFETY: the buffer is in a box of the connection. Until the completion of this operation,
        // nothing else touches the buffer or removes the connection.
        unsafe { self.push(entry, Operation::Receive, place) }
    }

    fn shutdown(&mut self, connection: &mut Connection, place: usize) -> io::Result<()> {
        let entry = opcode::Shutdown::new(Fd(connection.fd.as_raw_fd()), libc::SHUT_WR).build();
        // SAFETY: the entry names no memory.
        unsafe { self.push(entry, Operation::Shutdown, place) }
    }

    /// Waits for a completion and returns all completions that are queued.
    fn completed(&mut self) -> io::Result<Vec<cqueue::Entry>> {
        match self.0.submit_and_wait(1) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        Ok(self.0.completion().collect())
    }
}

/// Returns the operation, the connection's index and the result of a completion.
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
                // The peer has shut down its sending direction, or the connection has failed.
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

/// Returns the byte with which a message is filled.
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
                    // The buffer is filled with other bytes than were sent, so that a missing echo
                    // is noticed.
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
            // Send the next message, or shut down.
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

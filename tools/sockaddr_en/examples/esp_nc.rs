// SPDX-License-Identifier: MIT OR Apache-2.0

//! Copies standard input to a connection, and received bytes to standard output, as `nc` does for
//! TCP.
//!
//! ```sh
//! esp_nc -l '*%eth0:2805'
//! esp_nc 02:00:00:00:00:01%eth0:2805
//! ```
//!
//! The two directions end separately: the end of standard input shuts down the sending direction,
//! and the program continues to print received bytes.

use std::env;
use std::fs::File;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::thread;

use sockaddr_en::{EspListener, EspStream};

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let joined = match arguments[..] {
        ["-l", address] => listen(address).and_then(join),
        [address] if !address.starts_with('-') => EspStream::connect(address).and_then(join),
        _ => {
            eprintln!("usage: esp_nc [-l] ADDRESS");
            return ExitCode::from(2);
        }
    };
    match joined {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("esp_nc: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Waits for one connection.
fn listen(address: &str) -> io::Result<EspStream> {
    let listener = EspListener::bind(address)?;
    eprintln!("listening on {}", listener.local_addr()?);
    let (stream, peer) = listener.accept()?;
    eprintln!("{peer} connected");
    Ok(stream)
}

/// Copies in both directions until both have ended.
fn join(stream: EspStream) -> io::Result<()> {
    // The files are used without the standard library's buffers, which would hold data back until
    // the end of a line.
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            io::copy(&mut input, &mut &stream)?;
            stream.shutdown(Shutdown::Write)
        });
        let received = io::copy(&mut &stream, &mut output);
        let sent = sending.join().expect("the sending thread does not panic");
        received.and(sent)
    })
}

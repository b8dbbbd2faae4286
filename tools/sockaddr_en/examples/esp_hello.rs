// SPDX-License-Identifier: MIT OR Apache-2.0

//! Finds a host by its name or IP address, sends it a line over ESP, and prints its answer.
//!
//! ```sh
//! esp_hello 10.0.0.2 2805
//! ```

use std::env;
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::process::ExitCode;

use sockaddr_en::{lookup, EspStream};

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [host, port] = &arguments[..] else {
        return usage();
    };
    let Ok(port) = port.parse() else {
        return usage();
    };
    match ask(host, port) {
        Ok(answer) => {
            print!("{answer}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("esp_hello: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: esp_hello HOST PORT");
    ExitCode::from(2)
}

/// Sends a line to the host, and returns all that the host sends.
fn ask(host: &str, port: u16) -> io::Result<String> {
    let mut stream = EspStream::connect(lookup(host, port)?)?;
    stream.write_all(b"hello\n")?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

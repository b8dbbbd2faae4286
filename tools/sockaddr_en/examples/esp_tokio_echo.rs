// SPDX-License-Identifier: MIT OR Apache-2.0

//! An echo server and its client over ESP with tokio: any number of connections in one thread.
//!
//! ```sh
//! esp_tokio_echo serve '*%eth0:2805'
//! esp_tokio_echo ask 02:00:00:00:00:01%eth0:2805 100 65536
//! ```
//!
//! The client opens 100 connections at once, sends 65536 bytes over each, and compares the echo.

use std::env;
use std::io;
use std::process::ExitCode;

use sockaddr_en::tokio::{EspListener, EspStream};
use sockaddr_en::{Address, ToAddress};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["serve", address] => serve(address).await,
        ["ask", address, connections, bytes] => match (connections.parse(), bytes.parse()) {
            (Ok(connections), Ok(bytes)) => ask(address, connections, bytes).await,
            _ => return usage(),
        },
        _ => return usage(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("esp_tokio_echo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: esp_tokio_echo serve ADDRESS | ask ADDRESS CONNECTIONS BYTES");
    ExitCode::from(2)
}

async fn serve(address: &str) -> io::Result<()> {
    let listener = EspListener::bind(address)?;
    eprintln!("listening on {}", listener.get_ref().local_addr()?);
    loop {
        let (stream, peer) = listener.accept().await?;
        tokio::spawn(async move {
            if let Err(error) = echo(stream).await {
                eprintln!("{peer}: {error}");
            }
        });
    }
}

/// Sends received bytes back until the peer shuts down its sending direction.
async fn echo(stream: EspStream) -> io::Result<()> {
    let (mut from, mut to) = tokio::io::split(stream);
    tokio::io::copy(&mut from, &mut to).await?;
    to.shutdown().await
}

async fn ask(address: &str, connections: u32, bytes: usize) -> io::Result<()> {
    let address = address.to_address()?;
    let asked: Vec<_> = (0..connections)
        .map(|number| tokio::spawn(ask_once(address, number, bytes)))
        .collect();
    for one in asked {
        one.await.expect("a task does not panic")?;
    }
    println!("{connections} connections echoed {bytes} bytes each");
    Ok(())
}

/// Tests one connection. Sends and receives at the same time, because the server echoes before it
/// has all bytes.
async fn ask_once(address: Address, number: u32, bytes: usize) -> io::Result<()> {
    let message: Vec<u8> = (0..bytes).map(|i| (i ^ number as usize) as u8).collect();
    let (mut from, mut to) = tokio::io::split(EspStream::connect(address).await?);
    let send = async {
        to.write_all(&message).await?;
        to.shutdown().await
    };
    let mut echoed = Vec::new();
    tokio::try_join!(send, from.read_to_end(&mut echoed))?;
    if echoed != message {
        return Err(io::Error::other(format!(
            "connection {number}: not what was sent"
        )));
    }
    Ok(())
}

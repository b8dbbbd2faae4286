// SPDX-License-Identifier: MIT OR Apache-2.0

//! A server that echoes records, and its client, with tokio: each receive returns the bytes of one
//! send, so neither side counts bytes.
//!
//! ```sh
//! esp_tokio_records serve '*%eth0:2805'
//! esp_tokio_records ask 10.0.0.2 2805 100 50
//! ```
//!
//! The client finds the host by its name or IP address and opens 100 connections at once. Over each
//! connection it sends 50 records, of one byte, two bytes and so on, and compares the echo.

use std::env;
use std::io;
use std::process::ExitCode;

use sockaddr_en::tokio::{EspRecordListener, EspRecords};
use sockaddr_en::{lookup, Address};
use tokio::task::JoinSet;

/// Number of bytes of the longest record that every host accepts.
const LONGEST: usize = 65_536;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["serve", address] => serve(address).await,
        ["ask", host, port, connections, records] => {
            match (port.parse(), connections.parse(), records.parse()) {
                (Ok(port), Ok(connections), Ok(records)) => {
                    ask(host.to_owned(), port, connections, records).await
                }
                _ => return usage(),
            }
        }
        _ => return usage(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("esp_tokio_records: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: esp_tokio_records serve ADDRESS | ask HOST PORT CONNECTIONS RECORDS");
    ExitCode::from(2)
}

async fn serve(address: &str) -> io::Result<()> {
    let listener = EspRecordListener::bind(address)?;
    eprintln!("listening on {}", listener.local_addr()?);
    loop {
        let (records, peer) = listener.accept().await?;
        tokio::spawn(async move {
            if let Err(error) = echo(records).await {
                eprintln!("{peer}: {error}");
            }
        });
    }
}

async fn echo(records: EspRecords) -> io::Result<()> {
    let mut record = vec![0; LONGEST];
    loop {
        match records.recv(&mut record).await? {
            0 => return Ok(()),
            length => records.send(&record[..length]).await?,
        }
    }
}

async fn ask(host: String, port: u16, connections: usize, count: usize) -> io::Result<()> {
    // The lookup blocks while it waits for the host's answer.
    let found = tokio::task::spawn_blocking(move || lookup(&host, port)).await?;
    let address = found?;
    let mut all = JoinSet::new();
    for _ in 0..connections {
        all.spawn(ask_once(address, count));
    }
    while let Some(done) = all.join_next().await {
        done??;
    }
    println!("{connections} connections exchanged {count} records each");
    Ok(())
}

async fn ask_once(address: Address, count: usize) -> io::Result<()> {
    let records = EspRecords::connect(address).await?;
    let all: Vec<u8> = (0..count).map(|number| number as u8).collect();
    let mut answer = vec![0; LONGEST];
    for length in 1..=count {
        records.send(&all[..length]).await?;
        let got = records.recv(&mut answer).await?;
        if got != length || answer[..got] != all[..length] {
            return Err(io::Error::other(format!(
                "record {length} changed on the way"
            )));
        }
    }
    Ok(())
}

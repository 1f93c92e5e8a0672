//! A client that keeps one connection and waits for each answer.

use crate::BenchError;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// A connection.
pub struct Client {
    stream: BufReader<TcpStream>,
    address: String,
}

impl Client {
    pub fn connect(address: &str) -> Result<Client, BenchError> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Client { stream: BufReader::new(stream), address: address.to_owned() })
    }

    /// Sends a body.
    pub fn write(&mut self, path: &str, body: &[u8]) -> Result<(), BenchError> {
        self.request("POST", path, body)
    }

    /// Sends a body, and returns that of the answer if its status is 200.
    pub fn post(&mut self, path: &str, body: &[u8]) -> Result<String, BenchError> {
        self.request("POST", path, body)?;
        self.answer()
    }

    /// A metric of the server.
    pub fn metric(&mut self, name: &str) -> Result<f64, BenchError> {
        self.request("GET", "/metrics", b"")?;
        let text = self.answer()?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.ok_or_else(|| BenchError::Metric(name.to_owned()))
    }

    fn request(&mut self, method: &str, path: &str, body: &[u8]) -> Result<(), BenchError> {
        let address = &self.address;
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {length}\r\n\r\n");
        let stream = self.stream.get_mut();
        stream.write_all(head.as_bytes())?;
        Ok(stream.write_all(body)?)
    }

    fn answer(&mut self) -> Result<String, BenchError> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status: u16 = status.ok_or_else(|| BenchError::Http(line.clone()))?;
        let mut length = 0;
        loop {
            line.clear();
            self.stream.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().map_err(|_| BenchError::Http(line.clone()))?;
            }
        }
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer)?;
        let body = String::from_utf8_lossy(&answer).into_owned();
        if status == 200 { Ok(body) } else { Err(BenchError::Refused { status, body }) }
    }
}

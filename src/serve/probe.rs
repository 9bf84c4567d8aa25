//! One question to our own ops listener: is everything ready?

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Asks `GET /readyz`; the error is what is missing, in the listener's words.
pub fn readyz(ops: SocketAddr) -> Result<(), String> {
    let patience = Duration::from_secs(2);
    let ask = || -> std::io::Result<String> {
        let mut socket = TcpStream::connect_timeout(&ops, patience)?;
        socket.set_read_timeout(Some(patience))?;
        write!(socket, "GET /readyz HTTP/1.1\r\nHost: {ops}\r\n\r\n")?;
        let mut text = String::new();
        socket.read_to_string(&mut text)?;
        Ok(text)
    };
    match ask() {
        Ok(text) if text.starts_with("HTTP/1.1 200") => Ok(()),
        Ok(text) => Err(text
            .split_once("\r\n\r\n")
            .map_or(text.clone(), |(_, body)| body.to_owned())),
        Err(error) => Err(error.to_string()),
    }
}

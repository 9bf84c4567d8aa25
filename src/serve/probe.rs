//! One question to our own ops listener: is everything ready?

use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// What keeps the server from being ready.
pub struct Missing {
    /// Each part with its reason, in the listener's words.
    pub text: String,
    /// Waiting does not help.
    pub is_final: bool,
}

/// Asks `GET /readyz`.
pub fn readyz(ops: SocketAddr) -> Result<(), Missing> {
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
        Ok(text) => Err(missing(&text)),
        Err(error) => Err(Missing {
            text: error.to_string(),
            is_final: false,
        }),
    }
}

fn missing(answer: &str) -> Missing {
    let body = answer
        .split_once("\r\n\r\n")
        .map_or(answer, |(_, body)| body);
    let json: Value = serde_json::from_str(body).unwrap_or_default();
    let parts = json["not_ready"].as_array().map_or(&[][..], Vec::as_slice);
    if parts.is_empty() {
        return Missing {
            text: body.to_owned(),
            is_final: false,
        };
    }
    let text = |name: &str, part: &Value| part[name].as_str().unwrap_or_default().to_owned();
    let reasons: Vec<String> = parts
        .iter()
        .map(|part| format!("{}: {}", text("part", part), text("why", part)))
        .collect();
    Missing {
        text: reasons.join("; "),
        is_final: parts
            .iter()
            .any(|part| part["needs_restart"] == Value::Bool(true)),
    }
}

//! Every row of `forwarded-vectors.jsonl` as bytes through the request parser and `client_address`.
#![allow(clippy::unwrap_used)] // in a test a panic is the report

#[path = "vectors/mod.rs"]
mod vectors;

use serde_json::Value;
use std::net::IpAddr;
use weir_proto::addr::{Cidr, IpKey, Source, client_address};
use weir_proto::http::{Parsed, RequestParser};

struct Row {
    id: String,
    peer: IpAddr,
    trusted: Vec<Cidr>,
    source: Source,
    headers: Vec<(String, String)>,
    clients: Vec<String>,
    limiter_key: Option<String>,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn read_row(line: &str) -> Row {
    let row: Value = serde_json::from_str(line).unwrap();
    let list = |name: &str| row[name].as_array().cloned().unwrap_or_default();
    let mut clients = vec![text(&row["client"])];
    clients.extend(list("alternatives").iter().map(text));
    Row {
        id: text(&row["id"]),
        peer: text(&row["peer"]).parse().unwrap(),
        trusted: list("trusted")
            .iter()
            .map(|network| Cidr::parse(&text(network)).unwrap())
            .collect(),
        source: Source::from_text(&text(&row["mode"])).unwrap(),
        headers: list("headers")
            .iter()
            .map(|pair| (text(&pair[0]), text(&pair[1])))
            .collect(),
        clients,
        limiter_key: row["limiter_key"].as_str().map(str::to_owned),
    }
}

/// The row's headers as a client's bytes: a chunked request, so that "(trailer)" rows can be sent as trailers.
fn request_bytes(row: &Row) -> Vec<u8> {
    let (mut head, mut trailers) = (String::new(), String::new());
    for (name, value) in &row.headers {
        match name.strip_prefix("(trailer)") {
            Some(name) => trailers += &format!("{name}: {value}\r\n"),
            None => head += &format!("{name}: {value}\r\n"),
        }
    }
    format!(
        "POST / HTTP/1.1\r\nHost: weir.test\r\nTransfer-Encoding: chunked\r\n{head}\r\n0\r\n{trailers}\r\n"
    )
    .into_bytes()
}

/// What a shard does: parse, then ask with the lines of the configured header. `Err` is the refusal's status.
fn client_of(row: &Row) -> Result<IpAddr, u16> {
    let raw = request_bytes(row);
    let request = match RequestParser::default().parse(&raw) {
        Parsed::Done { request, .. } => request,
        Parsed::Reject(reject) => return Err(reject.reason().row().http_status),
        other => panic!("{}: {other:?}", row.id),
    };
    let lines = match row.source {
        Source::XForwardedFor => request.x_forwarded_for(),
        Source::Forwarded => request.forwarded(),
        other => panic!("{}: {other:?}", row.id),
    };
    Ok(client_address(row.source, row.peer, &row.trusted, lines))
}

#[test]
fn every_row_names_the_client_it_says() {
    let data = vectors::shared_data("forwarded-vectors.jsonl");
    let rows: Vec<Row> = data.lines().map(read_row).collect();
    assert_eq!(rows.len(), 37);
    for row in &rows {
        let client = match client_of(row) {
            Ok(client) => client,
            // The head's limit refuses the request before anybody asks for its client.
            Err(status) => {
                assert_eq!(row.clients, [format!("({status})")], "{}", row.id);
                continue;
            }
        };
        assert!(
            row.clients.contains(&client.to_string()),
            "{}: got {client}, expected one of {:?}",
            row.id,
            row.clients
        );
        if let Some(key) = &row.limiter_key {
            assert_eq!(&IpKey::new(client).to_string(), key, "{}", row.id);
        }
    }
}

#[test]
fn where_a_row_allows_two_clients_ours_is_the_last_good_entry() {
    let data = vectors::shared_data("forwarded-vectors.jsonl");
    let row = data
        .lines()
        .map(read_row)
        .find(|row| row.id == "garbage-mid")
        .unwrap();
    assert_eq!(client_of(&row).unwrap().to_string(), "10.0.0.9");
}

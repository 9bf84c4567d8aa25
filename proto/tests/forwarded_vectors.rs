//! Every row of `forwarded-vectors.jsonl` through `client_address`, with the row's own choice of lines.
#![allow(clippy::unwrap_used)] // in a test a panic is the report

#[path = "common/mod.rs"]
mod common;

use serde_json::Value;
use std::net::IpAddr;
use weir_proto::addr::{Cidr, IpKey, Source, client_address};
use weir_proto::limits::HEAD_BYTES_MAX;

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

/// What a shard does: the lines of the configured header, names compared whatever their case.
fn client_of(row: &Row) -> IpAddr {
    let name = row.source.header_name().unwrap();
    let lines: Vec<&[u8]> = row
        .headers
        .iter()
        .filter(|(header, _)| header.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.as_bytes())
        .collect();
    client_address(row.source, row.peer, &row.trusted, lines.into_iter())
}

#[test]
fn every_row_names_the_client_it_says() {
    let data = common::shared_data("forwarded-vectors.jsonl");
    let rows: Vec<Row> = data.lines().map(read_row).collect();
    assert_eq!(rows.len(), 37);
    for row in &rows {
        let client = client_of(row);
        if row.clients == ["(431)"] {
            // The head's limit refuses the request before anybody asks for its client; were it asked, it is the peer.
            let head_bytes: usize = row.headers.iter().map(|(n, v)| n.len() + v.len()).sum();
            assert!(head_bytes > HEAD_BYTES_MAX, "{}", row.id);
            assert_eq!(client, row.peer, "{}", row.id);
            continue;
        }
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
    let data = common::shared_data("forwarded-vectors.jsonl");
    let row = data
        .lines()
        .map(read_row)
        .find(|row| row.id == "garbage-mid")
        .unwrap();
    assert_eq!(client_of(&row).to_string(), "10.0.0.9");
}

//! What a sale left in Redis, held against what its buyers were told.

use super::load::{Buyer, End, Report, sku};
use super::redis_part::Redis;
use std::collections::{BTreeMap, BTreeSet};

/// `HGETALL`, by `redis-cli`, which follows redirections.
pub fn hash(server: &Redis, number: u64, name: &str) -> BTreeMap<String, String> {
    let key = key(number, name);
    let text = server.cli(&["-c", "HGETALL", &key]);
    let mut lines = text.lines().map(str::to_owned);
    let mut hash = BTreeMap::new();
    while let Some(field) = lines.next() {
        // An empty hash is one empty line.
        if let Some(value) = lines.next() {
            hash.insert(field, value);
        }
    }
    hash
}

pub fn key(number: u64, name: &str) -> String {
    format!("{{a{}:s{number}}}:{name}", sku(number).activity.0)
}

/// What of the SKU at `place` does not agree; `server`: any node.
pub fn differences(server: &Redis, report: &Report, place: usize, number: u64) -> Vec<String> {
    let mut wrong = Vec::new();
    let books = hash(server, number, "sku");
    let unit = |name: &str| books[name].parse::<u64>().unwrap();
    let records = hash(server, number, "res");
    let mine = report.buyers.iter().filter(|buyer| buyer.place == place);
    let granted: Vec<&Buyer> = mine.filter(|buyer| buyer.reservation.is_some()).collect();
    let held = granted.iter().filter(|buyer| buyer.end() == End::Holds);
    let held: u64 = held.map(|buyer| u64::from(buyer.quantity)).sum();
    let (total, free) = (unit("total"), unit("free"));
    if (unit("held"), unit("sold")) != (held, 0) || total != free + held {
        wrong.push(format!("{held} units are held, not {books:?}"));
    }
    if records.len() != granted.len() {
        let (there, told) = (records.len(), granted.len());
        wrong.push(format!("{there} reservations, {told} were told"));
    }
    let mut numbers = BTreeSet::new();
    for buyer in &granted {
        let id = buyer.reservation.map_or(0, |id| id.0 - (number << 32));
        if !numbers.insert(id) {
            wrong.push(format!("{id} was granted twice"));
        }
        let state = if buyer.end() == End::Holds { "0" } else { "3" };
        let found = records.get(&id.to_string()).map(String::as_str);
        let fields: Vec<&str> = found.unwrap_or("").split(' ').collect();
        let is_right = fields.len() == 9
            && fields[..2] == [state, &buyer.quantity.to_string()]
            && fields[4] == buyer.user.to_string()
            && fields[7] == buyer.request();
        if !is_right {
            wrong.push(format!("{buyer:?} is {found:?}"));
        }
    }
    let mut users = BTreeSet::new();
    for buyer in granted.iter().filter(|buyer| buyer.end() == End::Holds) {
        if !users.insert(buyer.user) {
            wrong.push(format!("user {} holds twice", buyer.user));
        }
    }
    let orders = server.cli(&["-c", "XLEN", &key(number, "orders")]);
    if orders != granted.len().to_string() {
        wrong.push(format!(
            "{orders} order messages for {} grants",
            granted.len()
        ));
    }
    wrong
}

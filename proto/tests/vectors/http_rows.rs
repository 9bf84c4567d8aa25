//! The rows of `http1-vectors.jsonl`, what the parser alone makes of each, and the one judge of every level.
//!
//! Used by the parser's test, by the shard on simulated sockets and by the running server: each says what it heard, the
//! judge says whether the row allows it.
#![allow(dead_code)] // each level uses what it needs

#[path = "mod.rs"]
mod place;

use serde_json::Value;
use weir_proto::http::{HttpReject, Method, Parsed, RequestParser, Version};
use weir_proto::limits::{BODY_BYTES_MAX, REQUEST_BYTES_MAX};

/// One row.
pub struct Row {
    value: Value,
    pub id: String,
    pub raw: Vec<u8>,
    pub model: Outcome,
}

/// All of them, in the file's order.
pub fn rows() -> Vec<Row> {
    let text = place::shared_data("http1-vectors.jsonl");
    let rows: Vec<Row> = text.lines().map(Row::read).collect();
    assert!(rows.len() >= 475, "only {} rows", rows.len());
    rows
}

/// What a row expects of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Expect {
    Accept,
    Reject,
    Either,
}

/// How a row wants its bytes delivered.
#[derive(Debug)]
pub struct Delivery {
    /// The pieces end here, in rising order, the last at the end.
    pub cuts: Vec<usize>,
    pub gap_ms: u64,
    /// The client ends its side behind the last byte.
    pub shutdown_write: bool,
}

impl Row {
    fn read(line: &str) -> Self {
        let value: Value = serde_json::from_str(line).unwrap();
        let raw = base64(value["raw_base64"].as_str().unwrap());
        assert_eq!(raw.len() as u64, value["raw_len"].as_u64().unwrap());
        Self {
            id: value["id"].as_str().unwrap().to_owned(),
            model: drive(&raw, [raw.len()]),
            raw,
            value,
        }
    }

    pub fn expect(&self) -> Expect {
        match self.value["expect"].as_str().unwrap() {
            "accept" => Expect::Accept,
            "reject" => Expect::Reject,
            "either" => Expect::Either,
            other => panic!("{}: unknown expectation {other}", self.id),
        }
    }

    pub fn is(&self, name: &str) -> bool {
        self.value.get(name) == Some(&Value::Bool(true))
    }

    pub fn number(&self, name: &str) -> Option<u64> {
        self.value.get(name).and_then(Value::as_u64)
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.value.get(name).and_then(Value::as_str)
    }

    /// True when the row's statuses hold this one; a row without a list allows all.
    pub fn allows(&self, status: u16) -> bool {
        let Some(list) = self.value.get("expected_status") else {
            return true;
        };
        list.as_array()
            .unwrap()
            .iter()
            .any(|allowed| match allowed {
                Value::Number(code) => code.as_u64() == Some(u64::from(status)),
                Value::String(text) => {
                    text == &status.to_string() || *text == format!("{}xx", status / 100)
                }
                other => panic!("{}: {other}", self.id),
            })
    }

    /// True when the bytes stop in the middle of a request: nothing may be answered before a deadline.
    pub fn waits(&self) -> bool {
        self.model.end == End::Waiting || self.is("incomplete")
    }

    /// The row's own delivery, when it has one. `draw(n)`: a number below `n`, for `random`.
    pub fn delivery(&self, mut draw: impl FnMut(u64, usize) -> usize) -> Option<Delivery> {
        let given = self.value.get("delivery")?;
        let length = self.raw.len();
        let number = |name: &str| given.get(name).and_then(Value::as_u64);
        let mut cuts: Vec<usize> = match given["mode"].as_str().unwrap() {
            "one" => Vec::new(),
            "each_byte" => (number("from").unwrap_or(0) as usize..length).collect(),
            "cuts" => {
                let at = given["at"].as_array().unwrap().iter();
                at.map(|cut| cut.as_u64().unwrap() as usize).collect()
            }
            "random" => {
                let (seed, parts) = (number("seed").unwrap(), number("parts").unwrap());
                (1..parts).map(|_| 1 + draw(seed, length - 1)).collect()
            }
            other => panic!("{}: unknown delivery {other}", self.id),
        };
        cuts.push(length);
        cuts.sort_unstable();
        cuts.dedup();
        cuts.retain(|&cut| cut > 0);
        Some(Delivery {
            cuts,
            gap_ms: number("gap_ms").unwrap_or(0),
            shutdown_write: given.get("shutdown_write") == Some(&Value::Bool(true)),
        })
    }
}

fn base64(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text.bytes().filter(|&byte| byte != b'=') {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => panic!("not base64: {byte}"),
        };
        bits = bits << 6 | u32::from(six);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}

/// A request as its owner saw it.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    pub method: Method,
    pub path: Vec<u8>,
    pub query: Option<Vec<u8>>,
    pub version: Version,
    pub keep_alive: bool,
    pub body: Vec<u8>,
}

impl Seen {
    /// What a shard with echo says of this request (`Shard::plant_echo`).
    pub fn echo(&self) -> String {
        let mut target = self.path.clone();
        if let Some(query) = &self.query {
            target.push(b'?');
            target.extend_from_slice(query);
        }
        let (method, version) = (self.method, self.version);
        let (keep_alive, hash) = (self.keep_alive, hash(&target));
        let body = body_echo(&self.body);
        format!("{method:?} {version:?} keep-alive={keep_alive} target={hash} {body}")
    }
}

fn hash(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..16].to_owned()
}

fn body_echo(body: &[u8]) -> String {
    format!("body={}:{}", body.len(), hash(body))
}

/// How a connection's bytes ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// Between requests.
    Idle,
    /// In the middle of a request.
    Waiting,
    /// After an answer that closes.
    Closed,
    Rejected(HttpReject),
}

/// What the parser made of a connection's bytes.
#[derive(Debug)]
pub struct Outcome {
    pub requests: Vec<Seen>,
    pub end: End,
    pub continues: usize,
}

impl Outcome {
    /// One status per final answer; a request that was read counts as 200.
    pub fn statuses(&self) -> Vec<u16> {
        let mut statuses = vec![200; self.requests.len()];
        if let End::Rejected(reject) = self.end {
            statuses.push(reject.status().code());
        }
        statuses
    }

    /// True when the server closes, whatever the client does.
    pub fn closes(&self) -> bool {
        matches!(self.end, End::Closed | End::Rejected(_))
    }

    /// As a server with echo would be heard.
    pub fn heard(&self) -> Heard {
        let echoes = self.requests.iter().map(|seen| Some(seen.echo()));
        let mut echoes: Vec<Option<String>> = echoes.collect();
        echoes.resize(self.statuses().len(), None);
        Heard {
            statuses: self.statuses(),
            interims: vec![100; self.continues],
            echoes,
            closed: self.closes(),
            bytes: Vec::new(),
        }
    }
}

/// Shows `raw` to a parser as if it arrived in pieces that end at `cuts`, in rising order.
pub fn drive(raw: &[u8], cuts: impl IntoIterator<Item = usize>) -> Outcome {
    let mut parser = RequestParser::default();
    let mut scratch = [0; BODY_BYTES_MAX];
    let mut outcome = Outcome {
        requests: Vec::new(),
        end: End::Idle,
        continues: 0,
    };
    let mut start = 0;
    for cut in cuts {
        loop {
            match parser.parse(&raw[start..cut]) {
                Parsed::Done { request, consumed } => {
                    assert!(consumed > 0 && consumed <= REQUEST_BYTES_MAX);
                    assert!(!parser.is_open());
                    let body = request.body.in_one(&mut scratch).to_vec();
                    assert_eq!(request.body.len(), body.len());
                    outcome.requests.push(Seen {
                        method: request.method,
                        path: request.path.to_vec(),
                        query: request.query.map(<[u8]>::to_vec),
                        version: request.version,
                        keep_alive: request.keep_alive,
                        body,
                    });
                    start += consumed;
                    if !request.keep_alive {
                        outcome.end = End::Closed;
                        return outcome;
                    }
                }
                Parsed::NeedMore => break,
                Parsed::Continue => outcome.continues += 1,
                Parsed::Reject(reject) => {
                    assert!(
                        matches!(parser.parse(&raw[start..]), Parsed::Reject(again) if again == reject),
                        "a refusal is final"
                    );
                    outcome.end = End::Rejected(reject);
                    return outcome;
                }
            }
        }
        assert!(
            cut - start <= REQUEST_BYTES_MAX,
            "the caller's buffer would not do"
        );
    }
    outcome.end = if start == raw.len() {
        End::Idle
    } else {
        End::Waiting
    };
    outcome
}

/// What a client heard on one connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Final answers, in order.
    pub statuses: Vec<u16>,
    /// Interim answers, in order.
    pub interims: Vec<u16>,
    /// What each final answer says the handler saw; `None` where it cannot say (HEAD, refusals).
    pub echoes: Vec<Option<String>>,
    /// The server closed before the client did.
    pub closed: bool,
    /// All bytes, where there are any.
    pub bytes: Vec<u8>,
}

/// One rule: what it says, and whether it holds.
fn rule(holds: bool, text: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(text()) }
}

/// Judges what was heard when every byte was delivered and before any deadline.
///
/// # Errors
/// The rule of the row that is broken.
pub fn judge(row: &Row, heard: &Heard) -> Result<(), String> {
    bounds(row, heard)?;
    let statuses = &heard.statuses;
    if row.is("incomplete") {
        return rule(statuses.is_empty() && !heard.closed, || {
            format!("answered before its end: {statuses:?}")
        });
    }
    match row.expect() {
        Expect::Accept if row.is("half_request") => {
            let waits = statuses.is_empty() && !heard.closed && heard.interims == [100];
            rule(row.allows(100) && waits, || {
                format!("no 100: {:?} {statuses:?}", heard.interims)
            })
        }
        Expect::Accept => {
            rule(
                !statuses.is_empty() && statuses.iter().all(|&status| row.allows(status)),
                || format!("not accepted: {statuses:?}"),
            )?;
            rule(!row.is("must_close") || heard.closed, || {
                "not closed".to_owned()
            })?;
            rule(
                row.number("responses")
                    .is_none_or(|exact| exact == statuses.len() as u64),
                || format!("not the exact number of answers: {statuses:?}"),
            )
        }
        Expect::Reject => match statuses.first() {
            Some(&status) => rule(row.allows(status) && heard.closed, || {
                format!("{status}, closed: {}", heard.closed)
            }),
            // The bytes may be the beginning of something good: then the deadline refuses them.
            None => rule(
                row.waits() && (row.allows(408) || row.is("or_silent_close")),
                || "never answered".to_owned(),
            ),
        },
        Expect::Either => Ok(()),
    }
}

/// Judges what was heard at the end of a connection whose client sent no more than the row: the deadline has passed.
///
/// # Errors
/// The rule of the row that is broken.
pub fn judge_overdue(row: &Row, heard: &Heard) -> Result<(), String> {
    bounds(row, heard)?;
    rule(heard.closed, || "never closed".to_owned())?;
    match (heard.statuses.last(), row.expect()) {
        (_, Expect::Either) => Ok(()),
        (None, _) => rule(row.is("or_silent_close"), || {
            "closed without a word".to_owned()
        }),
        (Some(&status), _) => rule(row.allows(status), || format!("{status} at the deadline")),
    }
}

/// What holds for every row and at any time.
fn bounds(row: &Row, heard: &Heard) -> Result<(), String> {
    let Heard {
        statuses,
        interims,
        bytes,
        ..
    } = heard;
    let max = row.number("max_responses").unwrap();
    rule(statuses.len() as u64 <= max, || {
        format!("{EXTRA}: {statuses:?}, at most {max}")
    })?;
    rule(interims.len() <= 1, || {
        format!("interim answers: {interims:?}")
    })?;
    rule(!row.is("no_1xx") || interims.is_empty(), || {
        format!("interim answers: {interims:?}")
    })?;
    if let Some(forbidden) = row.value["must_not_status"].as_array() {
        for status in forbidden.iter().filter_map(Value::as_u64) {
            let said = statuses
                .iter()
                .chain(interims)
                .any(|&said| u64::from(said) == status);
            rule(!said, || format!("{status} was said"))?;
        }
    }
    if let Some(secret) = row.text("must_not_echo") {
        rule(!holds(bytes, secret), || {
            "what must not be echoed was".to_owned()
        })?;
    }
    if let Some(field) = row.text("must_not_set_header") {
        rule(!holds(bytes, &format!("\r\n{field}")), || {
            format!("{field} was set")
        })?;
    }
    // Only the first answer can be judged: rows with a body have one.
    if let (Some(body), Some(Some(echo))) = (row.text("decoded_body_base64"), heard.echoes.first())
    {
        let wanted = body_echo(&base64(body));
        rule(echo.ends_with(&wanted), || {
            format!("the handler saw {echo}, not {wanted}")
        })?;
    }
    Ok(())
}

/// How the judge begins its word about more answers than a row allows.
pub const EXTRA: &str = "extra responses";

fn holds(bytes: &[u8], text: &str) -> bool {
    let lower = bytes.to_ascii_lowercase();
    lower
        .windows(text.len())
        .any(|window| window == text.to_ascii_lowercase().as_bytes())
}

//! Every script in `lua/` keeps the rules of `lua/README.md`; and each rule finds what breaks it.
#![allow(clippy::unwrap_used)] // a test that meets one has failed

use std::fs;
use std::path::Path;

#[path = "lua_lint/rules.rs"]
mod rules;
#[path = "lua_lint/tokens.rs"]
mod tokens;

use rules::{Finding, check};
use weir_core::redis::script::Script;

#[test]
fn every_script_keeps_the_rules_and_is_part_of_the_program() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("lua");
    let mut count = 0;
    let mut wrong = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "lua") {
            continue;
        }
        count += 1;
        let text = fs::read_to_string(&path).unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap();
        for finding in check(&text) {
            wrong += &format!("{name}.lua:{}: {finding:?}\n", finding.line);
        }
        for (at, line) in text.lines().enumerate() {
            if line.chars().count() > 120 {
                wrong += &format!("{name}.lua:{}: longer than 120\n", at + 1);
            }
        }
        let ours = Script::ALL.iter().find(|script| script.name() == name);
        assert_eq!(
            ours.map(|script| script.source()),
            Some(text.as_str()),
            "{name}"
        );
    }
    assert_eq!(count, Script::ALL.len());
    assert!(wrong.is_empty(), "{wrong}");
}

/// A script that keeps every rule.
const GOOD: &str = "-- What: takes one.
-- KEYS[1] stock HASH, KEYS[2] log STREAM.
-- ARGV[1] quantity.
-- Returns: {0, left} or {1}.
-- Complexity: O(1).
-- Writes: log, stock.

local time = redis.call('TIME')
local stock_key, quantity = KEYS[1], tonumber(ARGV[1])
local stock = tonumber(redis.call('HGET', stock_key, 'free'))
if not stock or stock < quantity then
    return {1}
end

redis.call('XADD', KEYS[2], '*', 'at', math.floor(time[2] / 1000))
redis.call('HSET', stock_key, 'free', stock - quantity)
return {0, stock - quantity}
";

fn rules_of(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().map(|finding| finding.rule).collect()
}

#[test]
fn each_rule_finds_what_breaks_it() {
    assert_eq!(check(GOOD), []);
    let planted = [
        // A key made inside, from a key, from an argument, by a name that changes.
        ("'HGET', stock_key", "'HGET', 'stock:' .. KEYS[1]", "keys"),
        ("'HGET', stock_key", "'HGET', ARGV[1]", "keys"),
        ("'HGET', stock_key", "'HGET', quantity", "keys"),
        (
            "local stock_key, quantity = KEYS[1], tonumber(ARGV[1])",
            "local stock_key = 'x' .. KEYS[1]\nlocal quantity = tonumber(ARGV[1])",
            "keys",
        ),
        ("'HGET', stock_key, 'free'", "'HGET', unpack(KEYS)", "keys"),
        ("redis.call('HGET'", "redis.call(ARGV[1]", "keys"),
        (
            "    return {1}\n",
            "    stock_key = 'other'\n    return {1}\n",
            "keys",
        ),
        // A check behind a write: refused, returned, read, hidden.
        (
            "if not stock or",
            "redis.call('HSET', stock_key, 'asked', '1')\nif not stock or",
            "order",
        ),
        (
            "return {0,",
            "if stock == 1 then\n    return redis.error_reply('ERR')\nend\nreturn {0,",
            "order",
        ),
        (
            "return {0,",
            "local left = redis.call('HGET', stock_key, 'free')\nreturn {left,",
            "order",
        ),
        ("redis.call('HSET'", "redis.pcall('HSET'", "order"),
        // Work that depends on what is stored.
        (
            "return {0,",
            "while stock > 0 do\n    stock = stock - 1\nend\nreturn {0,",
            "loops",
        ),
        (
            "return {0,",
            "repeat\n    stock = stock - 1\nuntil stock == 0\nreturn {0,",
            "loops",
        ),
        (
            "return {0,",
            "for i = 1, stock do\n    quantity = i\nend\nreturn {0,",
            "loops",
        ),
        (
            "return {0,",
            "for i in string.gmatch('a', 'b') do\n    quantity = i\nend\nreturn {0,",
            "loops",
        ),
        (
            "local stock = ",
            "local function f()\n    return f()\nend\nlocal stock = ",
            "loops",
        ),
        ("'HGET', stock_key, 'free'", "'HGETALL', stock_key", "bound"),
        (
            "'HGET', stock_key, 'free'",
            "'HSCAN', stock_key, '0'",
            "bound",
        ),
        (
            "'HGET', stock_key, 'free'",
            "'ZRANGEBYSCORE', stock_key, '0', '+inf'",
            "bound",
        ),
        // Floats.
        ("stock - quantity)", "stock - quantity * 1.5)", "floats"),
        ("stock - quantity)", "stock - quantity * 1e3)", "floats"),
        ("stock - quantity)", "tostring(stock - quantity))", "floats"),
        (
            "stock - quantity)",
            "string.format('%f', stock - quantity))",
            "floats",
        ),
        ("stock - quantity)", "stock / quantity)", "floats"),
        ("math.floor(time", "math.ceil(time", "floats"),
        // The clock, names, the header.
        (
            "local time = redis.call('TIME')\n",
            "local time = {0, 0}\n",
            "time",
        ),
        ("tonumber(ARGV[1])", "tonumbr(ARGV[1])", "names"),
        ("-- Returns: ", "-- Gives: ", "header"),
        ("-- Complexity: ", "-- Fast: ", "header"),
        ("-- Writes: ", "-- Changes: ", "header"),
        ("-- What: takes", "-- Takes", "header"),
        (", KEYS[2] log STREAM", "", "header"),
        (
            "ARGV[1] quantity",
            "ARGV[1] quantity, ARGV[2] price",
            "header",
        ),
    ];
    for (good, bad, rule) in planted {
        assert!(GOOD.contains(good), "{good}");
        let found = rules_of(&check(&GOOD.replacen(good, bad, 1)));
        assert!(found.contains(&rule), "{bad:?} is not found: {found:?}");
    }
    let bounded = GOOD.replace(
        "return {0,",
        "for i = 1, 3 do\n    quantity = i\nend\nreturn {0,",
    );
    assert_eq!(check(&bounded), [], "a loop with a constant bound is one");
}

-- What: a page of the reservations that have no order yet, oldest first: the outbox by state, not by what was sent;
-- and a page of the restocks that were carried out, by the numbers of the operators' requests.
-- KEYS[1] sku HASH, KEYS[2] res HASH, KEYS[3] pending ZSET, KEYS[4] ops HASH.
-- ARGV[1] granted at this ms or later, ARGV[2] how many of them to pass over, ARGV[3] most of the page, 1..256,
-- ARGV[4] the number of an operator's request: restocks from there on.
-- Returns: {19 OUTBOX, total units, {id, granted_at ...}, {record ...}, number from which the next page of requests
-- goes, 0..1: no such request is there, so all of the total is told, {request id, at, units ...}} or {7 NOT_OPEN}. Ids,
-- times, units and records are texts; a record is absent (null) where a pending id has none.
-- Complexity: O(log n of the unconfirmed reservations + passed over + page + 16 requests).
-- Writes: nothing.

local time = redis.call('TIME')
local sku_key, res_key, pending_key, from, skip, count = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], tonumber(ARGV[3])
local ops_key, number = KEYS[4], tonumber(ARGV[4])
local REQUESTS_OF_PAGE = 16 -- limits.rs
if not count or count < 1 or count > 256 or not string.match(from, '^%d+$') or not string.match(skip, '^%d+$')
    or not number or number > 1099511627776 then
    return redis.error_reply('WEIRARGS outbox: an argument is missing, no number or out of range')
end
local total = redis.call('HGET', sku_key, 'total')
if not total then
    return {7}
end
local ids = redis.call('ZRANGEBYSCORE', pending_key, from, '+inf', 'LIMIT', skip, count)
local found = redis.call('ZRANGEBYSCORE', pending_key, from, '+inf', 'WITHSCORES', 'LIMIT', skip, count)
local records = {}
if #ids > 0 then
    records = redis.call('HMGET', res_key, unpack(ids))
end

local log = redis.call('HMGET', ops_key, 'first', 'next')
local after = tonumber(log[2] or 0)
if number > after then
    number = 0 -- of a log that is gone
end
local start = math.max(number, tonumber(log[1] or 0))
local behind = math.min(start + REQUESTS_OF_PAGE, math.max(start, after))
local numbers, names, restocks = {}, {}, {}
for at = 1, REQUESTS_OF_PAGE do
    if start + at <= after then
        numbers[at] = string.format('n:%d', start + at - 1)
    end
end
local requests = #numbers > 0 and redis.call('HMGET', ops_key, unpack(numbers)) or {}
for at = 1, REQUESTS_OF_PAGE do
    if numbers[at] then
        names[at] = 'r:' .. (requests[at] or '')
    end
end
local contents = #names > 0 and redis.call('HMGET', ops_key, unpack(names)) or {}
for at = 1, REQUESTS_OF_PAGE do
    local done_at, units = string.match(contents[at] or '', '^(%d+) restock (%d+)$')
    if units then
        restocks[#restocks + 1] = requests[at]
        restocks[#restocks + 1] = done_at
        restocks[#restocks + 1] = units
    end
end
return {19, tonumber(total), found, records, behind, behind >= after and 1 or 0, restocks}

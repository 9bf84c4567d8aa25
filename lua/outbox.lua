-- What: a page of the reservations that have no order yet, oldest first: the outbox by state, not by what was sent.
-- KEYS[1] sku HASH, KEYS[2] res HASH, KEYS[3] pending ZSET.
-- ARGV[1] granted at this ms or later, ARGV[2] how many of them to pass over, ARGV[3] most of the page, 1..256.
-- Returns: {19 OUTBOX, total units, {id, granted_at ...}, {record ...}} or {7 NOT_OPEN}. Ids, times and records are
-- texts; a record is absent (null) where a pending id has none.
-- Complexity: O(log n of the unconfirmed reservations + passed over + page).
-- Writes: nothing.

local time = redis.call('TIME')
local sku_key, res_key, pending_key, from, skip, count = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], tonumber(ARGV[3])
if not count or count < 1 or count > 256 or not string.match(from, '^%d+$') or not string.match(skip, '^%d+$') then
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
return {19, tonumber(total), found, records}

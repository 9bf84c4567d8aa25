-- What: gives units back after a definite end, once: the quantity is the record's, and an ended one only says so. The
-- record stays, so a late reserve of the same request is answered with it.
-- KEYS[1] sku HASH, KEYS[2] res HASH, KEYS[3] pending ZSET.
-- ARGV[1] reservation id, ARGV[2] end state: 3 CLOSED, 4 FAILED.
-- Returns: {13 NOW, id, state, quantity}, {14 STEP_REFUSED, id, state, quantity} or {15 NO_RESERVATION}.
-- Complexity: O(log n) of the unconfirmed reservations.
-- Writes: pending first (a command that Redis takes when its memory is full, and after one write it takes the others),
-- res, sku. While sold out the free units wait for reopen, so that one epoch covers all that gathered.

local time = redis.call('TIME')
local sku_key, res_key, pending_key, id, to = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2]
if to ~= '3' and to ~= '4' then
    return redis.error_reply('WEIRARGS release: the end is 3 or 4')
end
local sku = redis.call('HMGET', sku_key, 'now', 'held', 'free')
local record = sku[1] and redis.call('HGET', res_key, id)
if not record then
    return {15}
end
local state, units, granted_at, rest = string.match(record, '^(%d) (%d+) (%d+) %d+ (.*)$')
if state == '2' then
    return {14, tonumber(id), 2, tonumber(units)}
end
if state ~= '0' and state ~= '1' then
    return {13, tonumber(id), tonumber(state), tonumber(units)}
end
local now = math.max(tonumber(sku[1]), time[1] * 1000 + math.floor(time[2] / 1000))

redis.call('ZREM', pending_key, id)
redis.call('HSET', res_key, id, string.format('%s %s %s %d %s', to, units, granted_at, now, rest))
redis.call('HSET', sku_key, 'now', now, 'held', sku[2] - units, 'free', sku[3] + units)
return {13, tonumber(id), tonumber(to), tonumber(units)}

-- What: the order row of this reservation exists; it leaves the outbox.
-- KEYS[1] sku HASH, KEYS[2] res HASH, KEYS[3] pending ZSET.
-- ARGV[1] reservation id.
-- Returns: {13 NOW, id, state, quantity}, {14 STEP_REFUSED, id, state, quantity} or {15 NO_RESERVATION}.
-- Complexity: O(log n) of the unconfirmed reservations.
-- Writes: pending first (a command that Redis takes when its memory is full, and after one write it takes the others),
-- res, sku; nothing when it stands there already.

local time = redis.call('TIME')
local sku_key, res_key, pending_key, id = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local last = redis.call('HGET', sku_key, 'now')
local record = last and redis.call('HGET', res_key, id)
if not record then
    return {15}
end
local state, units, granted_at, rest = string.match(record, '^(%d) (%d+) (%d+) %d+ (.*)$')
if state == '1' or state == '2' then
    return {13, tonumber(id), tonumber(state), tonumber(units)}
end
if state ~= '0' then
    return {14, tonumber(id), tonumber(state), tonumber(units)}
end
local now = math.max(tonumber(last), time[1] * 1000 + math.floor(time[2] / 1000))

redis.call('ZREM', pending_key, id)
redis.call('HSET', res_key, id, string.format('1 %s %s %d %s', units, granted_at, now, rest))
redis.call('HSET', sku_key, 'now', now)
return {13, tonumber(id), 1, tonumber(units)}

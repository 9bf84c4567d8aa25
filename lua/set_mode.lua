-- What: sets the admission mode; 2 QUEUE_ONLY and 3 CLOSED let no new reservation in.
-- KEYS[1] sku HASH, KEYS[2] ops HASH: r:<request id> -> at and content, n:<number> -> request id, first, next.
-- ARGV[1] the operator's request id, ARGV[2] keep_until_ms, ARGV[3] mode 0..3.
-- Returns: {16 OPS_DONE, total, free, held, sold, quarantined}, {4 REQUEST_ID_CONFLICT}, {10 TABLE_FULL},
-- {7 NOT_OPEN}.
-- Complexity: O(1).
-- Writes: ops first (it grows memory; the oldest is forgotten when there are 1,024 and it is a day old), sku, the TTL;
-- nothing when the same request was carried out before.

local time = redis.call('TIME')
local sku_key, ops_key = KEYS[1], KEYS[2]
local request_id, keep_until = ARGV[1], ARGV[2]
local OPS_REMEMBERED_MAX, OPS_REMEMBERED_MS = 1024, 86400000 -- limits.rs
local mode = ARGV[3]
if not string.match(mode, '^[0-3]$') then
    return redis.error_reply('WEIRARGS set_mode: a mode is 0..3')
end
if not string.match(keep_until, '^%d+$') or #keep_until > 15 then
    return redis.error_reply('WEIRARGS set_mode: an argument is missing or no number')
end
local sku = redis.call('HMGET', sku_key, 'now', 'total', 'free', 'held', 'sold', 'quarantined', 'version')
local log = redis.call('HMGET', ops_key, 'r:' .. request_id, 'first', 'next')
local content = 'mode ' .. mode
if not sku[1] then
    return {7}
end
if log[1] then
    if string.match(log[1], '^%d+ (.*)$') == content then
        return {16, tonumber(sku[2]), tonumber(sku[3]), tonumber(sku[4]), tonumber(sku[5]), tonumber(sku[6])}
    end
    return {4}
end
local now = math.max(tonumber(sku[1]), time[1] * 1000 + math.floor(time[2] / 1000))
if tonumber(keep_until) <= now then
    return redis.error_reply('WEIRARGS set_mode: keep_until has passed; what it writes would be gone at once')
end
local first, after = tonumber(log[2] or 0), tonumber(log[3] or 0)
local oldest = false
if after - first >= OPS_REMEMBERED_MAX then
    oldest = redis.call('HGET', ops_key, string.format('n:%d', first))
    local at = string.match(redis.call('HGET', ops_key, 'r:' .. oldest), '^%d+')
    if now - tonumber(at) < OPS_REMEMBERED_MS then
        return {10}
    end
    first = first + 1
end

redis.call('HSET', ops_key, 'r:' .. request_id, string.format('%d %s', now, content), string.format('n:%d', after),
    request_id, 'first', first, 'next', after + 1)
if oldest then
    redis.call('HDEL', ops_key, 'r:' .. oldest, string.format('n:%d', first - 1))
end
redis.call('HSET', sku_key, 'now', now, 'mode', mode, 'version', sku[7] + 1)
redis.call('PEXPIREAT', ops_key, keep_until)
return {16, tonumber(sku[2]), tonumber(sku[3]), tonumber(sku[4]), tonumber(sku[5]), tonumber(sku[6])}

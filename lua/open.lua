-- What: puts a SKU on sale, with its first stock if it never was; opened again it keeps stock, books and mode.
-- KEYS[1] sku HASH, KEYS[2] ops HASH: r:<request id> -> at and content, n:<number> -> request id, first, next.
-- ARGV[1] the operator's request id, ARGV[2] keep_until_ms, ARGV[3] first stock,
-- ARGV[4] quantity_max, ARGV[5] once per activity 0..1, ARGV[6] policy version, ARGV[7] home: the server's name for
-- itself, replication id:run id; it stays what it is when the SKU was opened before.
-- Returns: {16 OPS_DONE, total, free, held, sold, quarantined}, {4 REQUEST_ID_CONFLICT}, {10 TABLE_FULL},
-- {9 QUANTITY_REFUSED} or {8, 2, 2} for an older policy.
-- Complexity: O(1).
-- Writes: ops first (it grows memory; the oldest is forgotten when there are 1,024 and it is a day old), sku, the TTL;
-- nothing when the same request was carried out before.

local time = redis.call('TIME')
local sku_key, ops_key = KEYS[1], KEYS[2]
local request_id, keep_until = ARGV[1], ARGV[2]
local OPS_REMEMBERED_MAX, OPS_REMEMBERED_MS = 1024, 86400000 -- limits.rs
local UNITS_MAX = 1099511627776 -- limits.rs
local stock, quantity_max, once, policy, home = tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[6], ARGV[7]
if not stock or not string.match(quantity_max, '^%d+$') or not string.match(once, '^[01]$')
    or not string.match(policy, '^%d+$') or not home then
    return redis.error_reply('WEIRARGS open: an argument is missing or no number')
end
if not string.match(keep_until, '^%d+$') or #keep_until > 15 then
    return redis.error_reply('WEIRARGS open: an argument is missing or no number')
end
local sku = redis.call('HMGET', sku_key, 'now', 'total', 'free', 'held', 'sold', 'quarantined', 'version', 'policy')
local log = redis.call('HMGET', ops_key, 'r:' .. request_id, 'first', 'next')
local content = table.concat({'open', ARGV[3], quantity_max, once}, ' ')
if sku[1] and log[1] then
    if string.match(log[1], '^%d+ (.*)$') == content then
        return {16, tonumber(sku[2]), tonumber(sku[3]), tonumber(sku[4]), tonumber(sku[5]), tonumber(sku[6])}
    end
    return {4}
end
local now = math.max(tonumber(sku[1] or 0), time[1] * 1000 + math.floor(time[2] / 1000))
if tonumber(keep_until) <= now then
    return redis.error_reply('WEIRARGS open: keep_until has passed; what it writes would be gone at once')
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
local older = sku[1] and (#policy < #sku[8] or (#policy == #sku[8] and policy < sku[8]))
if older then
    return {8, 2, 2}
end
if not sku[1] and stock > UNITS_MAX then
    return {9}
end
if not sku[1] and redis.call('EXISTS', sku_key) == 1 then
    return redis.error_reply('WEIRBOOKS ' .. sku_key .. ': holds what is not of weir: move it, or use another Redis')
end

redis.call('HSET', ops_key, 'r:' .. request_id, string.format('%d %s', now, content), string.format('n:%d', after),
    request_id, 'first', first, 'next', after + 1)
if oldest then
    redis.call('HDEL', ops_key, 'r:' .. oldest, string.format('n:%d', first - 1))
end
if sku[1] then
    redis.call('HSET', sku_key, 'now', now, 'open', '1', 'quantity_max', quantity_max, 'once', once, 'policy', policy,
        'version', sku[7] + 1)
else
    -- The first stock is no reopening: epoch 1, sold out only if there is none.
    redis.call('HSET', sku_key, 'now', now, 'open', '1', 'mode', '0', 'frozen', '', 'policy', policy, 'version', '1',
        'epoch', '1', 'sold_out', stock == 0 and '1' or '0', 'quantity_max', quantity_max, 'once', once, 'next', '1',
        'reservations', '0', 'restocked', '0', 'keep', '', 'sold', '0', 'quarantined', '0', 'held', '0', 'total', stock,
        'free', stock, 'home', home, 'fence', '', 'fenced', '0', 'heard', '0')
end
redis.call('PEXPIREAT', ops_key, keep_until)
return {16, tonumber(sku[2] or stock), tonumber(sku[3] or stock), tonumber(sku[4] or 0), tonumber(sku[5] or 0),
    tonumber(sku[6] or 0)}

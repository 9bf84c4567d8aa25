-- What: makes units that gathered while sold out sellable: one epoch step for all of them (the coalesced reopening).
-- KEYS[1] sku HASH, KEYS[2] events STREAM and channel.
-- ARGV[1] keep_until_ms.
-- Returns: {17 STEP, epoch, version, changed 0..1} or {7 NOT_OPEN}. A frozen SKU stays as it is until it thaws.
-- Complexity: O(1).
-- Writes: events (it grows memory), sku; then the TTL and the hint.

local time = redis.call('TIME')
local sku_key, events_key, keep_until = KEYS[1], KEYS[2], ARGV[1]
local EVENTS_MAX = 64 -- a reader that misses more has the snapshot
if not string.match(keep_until, '^%d+$') or #keep_until > 15 then
    return redis.error_reply('WEIRARGS reopen: keep_until is no number')
end
local sku = redis.call('HMGET', sku_key, 'now', 'sold_out', 'free', 'frozen', 'epoch', 'version', 'fence')
if not sku[1] then
    return {7}
end
if sku[2] == '0' or sku[3] == '0' or sku[4] ~= '' or (sku[7] or '') ~= '' then
    return {17, tonumber(sku[5]), tonumber(sku[6]), 0}
end
local now = math.max(tonumber(sku[1]), time[1] * 1000 + math.floor(time[2] / 1000))
local epoch, version = sku[5] + 1, sku[6] + 1

redis.call('XADD', events_key, 'MAXLEN', '~', EVENTS_MAX, '*', 'type', 'STOCK_REOPENED', 'epoch', epoch, 'at', now)
redis.call('HSET', sku_key, 'now', now, 'sold_out', '0', 'epoch', epoch, 'version', version)
redis.call('PEXPIREAT', events_key, keep_until)
redis.pcall('PUBLISH', events_key, string.format('STOCK_REOPENED %d', epoch))
return {17, epoch, version, 1}

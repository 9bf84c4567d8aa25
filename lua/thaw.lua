-- What: ends an operator's freeze. What was said before it may be wrong: the epoch grows, the mark is set anew from the
-- stock; a fence (fence.lua) stays, and keeps the SKU from selling.
-- KEYS[1] sku HASH, KEYS[2] events STREAM and channel.
-- ARGV[1] keep_until_ms, ARGV[2] the epoch is above this one, too: the largest that anybody has heard of.
-- Returns: {17 STEP, epoch, version, changed 0..1} or {7 NOT_OPEN}.
-- Complexity: O(1).
-- Writes: events (it grows memory), sku; then the TTL and the hint; nothing when it is not frozen.

local time = redis.call('TIME')
local sku_key, events_key, keep_until, heard = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])
local EVENTS_MAX = 64 -- a reader that misses more has the snapshot
local EPOCH_MAX = 1099511627776 -- above every epoch that a sale reaches, far below what a double holds
if not string.match(keep_until, '^%d+$') or #keep_until > 15 or not heard or heard > EPOCH_MAX then
    return redis.error_reply('WEIRARGS thaw: keep_until or epoch is missing, no number or too large')
end
local sku = redis.call('HMGET', sku_key, 'now', 'frozen', 'epoch', 'version', 'free')
if not sku[1] then
    return {7}
end
if sku[2] == '' then
    return {17, tonumber(sku[3]), tonumber(sku[4]), 0}
end
local now = math.max(tonumber(sku[1]), time[1] * 1000 + math.floor(time[2] / 1000))
local epoch, version = math.max(tonumber(sku[3]), heard) + 1, sku[4] + 1
local sold_out = sku[5] == '0'
local event = sold_out and 'SOLD_OUT' or 'STOCK_REOPENED'

redis.call('XADD', events_key, 'MAXLEN', '~', EVENTS_MAX, '*', 'type', event, 'epoch', epoch, 'at', now)
redis.call('HSET', sku_key, 'now', now, 'frozen', '', 'sold_out', sold_out and '1' or '0', 'epoch', epoch, 'version',
    version)
redis.call('PEXPIREAT', events_key, keep_until)
redis.pcall('PUBLISH', events_key, string.format('%s %d', event, epoch))
return {17, epoch, version, 1}

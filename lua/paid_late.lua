-- What: a payment came after the release. Sells again if units are free, even ones that wait for the reopening, the
-- user holds nothing and the SKU is not frozen; else PAID_LATE, a refund is due.
-- KEYS[1] sku HASH, KEYS[2] res HASH, KEYS[3] user HASH, KEYS[4] pending ZSET, KEYS[5] events STREAM and channel.
-- ARGV[1] reservation id, ARGV[2] keep_until_ms.
-- Returns: {13 NOW, id, state, quantity}, {14 STEP_REFUSED, id, state, quantity} or {15 NO_RESERVATION}.
-- Complexity: O(log n) of the unconfirmed reservations.
-- Writes: pending first (it removes nothing; Redis takes it when its memory is full, and after one write it takes the
-- others: the money is here), events, res, user, sku; then the TTL and the hint.

local time = redis.call('TIME')
local sku_key, res_key, user_key, pending_key, events_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, keep_until = ARGV[1], ARGV[2]
local EVENTS_MAX = 64 -- a reader that misses more has the snapshot
if not string.match(keep_until, '^%d+$') or #keep_until > 15 then
    return redis.error_reply('WEIRARGS paid_late: keep_until is no number')
end
local sku = redis.call('HMGET', sku_key, 'now', 'free', 'sold', 'epoch', 'sold_out', 'version', 'frozen', 'fence')
local record = sku[1] and redis.call('HGET', res_key, id)
if not record then
    return {15}
end
local state, units, granted_at, user, rest = string.match(record, '^(%d) (%d+) (%d+) %d+ (%d+) (.*)$')
if state == '0' or state == '1' then
    return {14, tonumber(id), tonumber(state), tonumber(units)}
end
if state == '2' or state == '5' then
    return {13, tonumber(id), tonumber(state), tonumber(units)}
end
local other = redis.call('HGET', user_key, user)
local held = other and redis.call('HGET', res_key, other)
local holds = held and tonumber(string.sub(held, 1, 1)) <= 2
local free, epoch, sold_out, version = tonumber(sku[2]), tonumber(sku[4]), sku[5], tonumber(sku[6])
-- While frozen nobody knows whether a free unit is: after a failover it may be one whose grant was lost.
local sells = not holds and free >= tonumber(units) and sku[7] == '' and (sku[8] or '') == ''
local sells_out = sells and free == tonumber(units) and sold_out == '0'
local to = sells and 2 or 5
local sold = sells and tonumber(units) or 0
redis.call('XLEN', events_key)
if sells_out then
    epoch, sold_out, version = epoch + 1, '1', version + 1
end
local now = math.max(tonumber(sku[1]), time[1] * 1000 + math.floor(time[2] / 1000))

redis.call('ZREM', pending_key, id)
if sells_out then
    redis.call('XADD', events_key, 'MAXLEN', '~', EVENTS_MAX, '*', 'type', 'SOLD_OUT', 'epoch', epoch, 'at', now)
end
redis.call('HSET', res_key, id, string.format('%d %s %s %d %s %s', to, units, granted_at, now, user, rest))
if sells then
    redis.call('HSET', user_key, user, id)
end
redis.call('HSET', sku_key, 'now', now, 'epoch', epoch, 'sold_out', sold_out, 'version', version, 'sold', sku[3] + sold,
    'free', free - sold)
if sells_out then
    redis.call('PEXPIREAT', events_key, keep_until)
    redis.pcall('PUBLISH', events_key, string.format('SOLD_OUT %d', epoch))
end
return {13, tonumber(id), to, tonumber(units)}

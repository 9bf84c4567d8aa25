-- What: after a failover, lets no new reservation in until the books are mended and rehome ends it.
-- KEYS[1] sku HASH.
-- ARGV[1] this server's name for itself, replication id:run id, ARGV[2] the largest epoch that the asker has heard of.
-- Returns: {17 STEP, epoch, version, changed 0..1} or {7 NOT_OPEN}.
-- Complexity: O(1).
-- Writes: sku; nothing where the books are at home in that epoch or a larger one, or the same fence stands and knows
-- it.

local time = redis.call('TIME')
local sku_key, here, heard = KEYS[1], ARGV[1], tonumber(ARGV[2])
local EPOCH_MAX = 1099511627776 -- above every epoch that a sale reaches, far below what a double holds
if not here or here == '' or #here > 100 or not heard or heard > EPOCH_MAX then
    return redis.error_reply('WEIRARGS fence: the name or the epoch is missing or out of range')
end
local sku = redis.call('HMGET', sku_key, 'now', 'home', 'fence', 'fenced', 'heard', 'epoch', 'version')
if not sku[1] then
    return {7}
end
local known = tonumber(sku[5] or 0)
if (sku[2] == here and (sku[3] or '') == '' and tonumber(sku[6]) >= heard)
    or (sku[3] == here and known >= heard) then
    return {17, tonumber(sku[6]), tonumber(sku[7]), 0}
end
local now = math.max(tonumber(sku[1]), time[1] * 1000 + math.floor(time[2] / 1000))
-- The time of a fence that another server had says nothing: its own clients may have been let in since.
local since = sku[3] == here and sku[4] or now

redis.call('HSET', sku_key, 'now', now, 'fence', here, 'fenced', since, 'heard', math.max(known, heard), 'version',
    sku[7] + 1)
return {17, tonumber(sku[6]), sku[7] + 1, 1}

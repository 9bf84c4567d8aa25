-- What: a write that says nothing new: WAIT behind it counts the replicas that have all before it, also what other
-- connections wrote.
-- KEYS[1] sku HASH.
-- ARGV: none.
-- Returns: {17 STEP, epoch, version, 0} or {7 NOT_OPEN}.
-- Complexity: O(1).
-- Writes: sku.

local time = redis.call('TIME')
local sku_key = KEYS[1]
local sku = redis.call('HMGET', sku_key, 'now', 'epoch', 'version')
if not sku[1] then
    return {7}
end
local now = math.max(tonumber(sku[1]), time[1] * 1000 + math.floor(time[2] / 1000))

redis.call('HSET', sku_key, 'now', now)
return {17, tonumber(sku[2]), tonumber(sku[3]), 0}

-- What: lets no new reservation in beside the mode, until thaw; everything else goes on (an operator's wish).
-- KEYS[1] sku HASH.
-- ARGV[1] reason, 1..64 bytes, for the operator.
-- Returns: {17 STEP, epoch, version, changed 0..1} or {7 NOT_OPEN}.
-- Complexity: O(1).
-- Writes: sku; nothing when it is frozen already: the first reason stays.

local time = redis.call('TIME')
local sku_key, reason = KEYS[1], ARGV[1]
if not reason or reason == '' or #reason > 64 then
    return redis.error_reply('WEIRARGS freeze: a reason has 1 to 64 bytes')
end
local sku = redis.call('HMGET', sku_key, 'now', 'frozen', 'epoch', 'version')
if not sku[1] then
    return {7}
end
if sku[2] ~= '' then
    return {17, tonumber(sku[3]), tonumber(sku[4]), 0}
end
local now = math.max(tonumber(sku[1]), time[1] * 1000 + math.floor(time[2] / 1000))

redis.call('HSET', sku_key, 'now', now, 'frozen', reason, 'version', sku[4] + 1)
return {17, tonumber(sku[3]), sku[4] + 1, 1}

-- What: what became of a request. For one never seen it closes the door for a while: no late grant follows a "no".
-- KEYS[1] sku HASH, KEYS[2] res HASH, KEYS[3] req HASH, KEYS[4] tomb STRING of this request.
-- ARGV[1] user, ARGV[2] request id, ARGV[3] how long the tombstone lives in ms; 0: none is written.
-- Returns: {11 FOUND, id, state, quantity, record}, {12 NOT_FOUND} or {7 NOT_OPEN} where nothing can be promised.
-- Complexity: O(1); 3 to 4 reads, at most 1 write.
-- Writes: tomb, with its TTL in the same command; an older one lives on from now.

local time = redis.call('TIME')
local sku_key, res_key, req_key, tomb_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ttl_ms = tonumber(ARGV[3])
if not ttl_ms then
    return redis.error_reply('WEIRARGS lookup: the TTL is no number')
end
if redis.call('HEXISTS', sku_key, 'now') == 0 then
    return {7}
end
local known = redis.call('HGET', req_key, ARGV[1] .. ':' .. ARGV[2])
if known then
    local record = redis.call('HGET', res_key, known)
    if not record then
        return redis.error_reply('WEIRBOOKS ' .. req_key .. ': names a reservation that is not in ' .. res_key)
    end
    local state, units = string.match(record, '^(%d) (%d+) ')
    return {11, tonumber(known), tonumber(state), tonumber(units), record}
end
if ttl_ms > 0 then
    redis.call('SET', tomb_key, time[1], 'PX', ARGV[3])
end
return {12}

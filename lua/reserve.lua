-- What: holds units for a user, if everything allows it, and appends the order message in the same step (the outbox).
-- KEYS[1] sku HASH, KEYS[2] res HASH id -> record, KEYS[3] req HASH user:request -> id, KEYS[4] nonce HASH -> id,
-- KEYS[5] user HASH user -> id, KEYS[6] pending ZSET id by grant, KEYS[7] orders STREAM, KEYS[8] events STREAM and
-- channel, KEYS[9] tomb STRING of this request.
-- ARGV[1] reservations_max, ARGV[2] price of a unit (minor), ARGV[3] its currency, ARGV[4] keep_until_ms, ARGV[5]
-- policy version, ARGV[6] user, ARGV[7] request id, ARGV[8] nonce, ARGV[9] quantity, ARGV[10] the name of the server
-- that the asker takes for this one: it may have slept through a failover.
-- Returns: {0 GRANTED, id, state, quantity, epoch, sold_out, granted at}, {1 REPEATED, id, state, quantity, record},
-- {3, id, state, quantity}, {2, epoch},
-- {8, mode, cause}, {4}, {5}, {6}, {7}, {9}, {10}; the order of the checks is the contract (ask.rs, README.md).
-- Complexity: O(log n) of the unconfirmed reservations; 6 to 10 reads, 7 writes for a grant.
-- Writes: orders (it grows memory and nothing has read its type), events, res, req, nonce, user, pending, sku; then
-- TTLs and the hint. Every other key's type was checked by a read, so no write after the first can fail.

local time = redis.call('TIME')
local sku_key, res_key, req_key, nonce_key, user_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local pending_key, orders_key, events_key, tomb_key = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local minor, currency, keep_until, policy = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local user, request_id, nonce, home = ARGV[6], ARGV[7], ARGV[8], ARGV[10]
local reservations_max, quantity = tonumber(ARGV[1]), tonumber(ARGV[9])
local RESERVATIONS_PER_UNIT, RESERVATIONS_MAX = 4, 4194304 -- limits.rs
local EVENTS_MAX = 64 -- a reader that misses more has the snapshot

local sku = redis.call('HMGET', sku_key, 'now', 'open', 'mode', 'frozen', 'policy', 'epoch', 'sold_out', 'free', 'held',
    'quantity_max', 'once', 'next', 'reservations', 'restocked', 'keep', 'version', 'fence', 'home')
if not sku[1] then
    return {7}
end
local now = math.max(tonumber(sku[1]), time[1] * 1000 + math.floor(time[2] / 1000))
if not (reservations_max and quantity and minor and currency and policy and home)
    or not string.match(keep_until, '^%d+$') or #keep_until > 15 then
    return redis.error_reply('WEIRARGS reserve: an argument is missing or no number')
end

-- A repeat gets its first answer, whatever else has changed.
local name = user .. ':' .. request_id
local known = redis.call('HGET', req_key, name)
if known then
    local record = redis.call('HGET', res_key, known)
    if not record then
        return redis.error_reply('WEIRBOOKS ' .. req_key .. ': names a reservation that is not in ' .. res_key)
    end
    local state, units = string.match(record, '^(%d) (%d+) ')
    if tonumber(units) == quantity then
        return {1, tonumber(known), tonumber(state), quantity, record}
    end
    return {4}
end
if redis.call('EXISTS', tomb_key) == 1 then
    return {6}
end
if redis.call('HGET', nonce_key, nonce) then
    return {5}
end

-- One per user: a live one bars; with `once` an ended one, too, unless no order came of it (FAILED).
local other = redis.call('HGET', user_key, user)
if other then
    local record = redis.call('HGET', res_key, other)
    if not record then
        return redis.error_reply('WEIRBOOKS ' .. user_key .. ': names a reservation that is not in ' .. res_key)
    end
    local state, units = string.match(record, '^(%d) (%d+) ')
    state = tonumber(state)
    if state <= 2 or (sku[11] == '1' and state ~= 4) then
        return {3, tonumber(other), state, tonumber(units)}
    end
end

local mode = tonumber(sku[3])
if sku[2] ~= '1' then
    return {7}
end
if mode >= 2 then
    return {8, mode, 0}
end
if sku[4] ~= '' or (sku[17] or '') ~= '' or (sku[18] or '') ~= home then
    return {8, 2, 1}
end
-- Versions are compared as decimal digits: they may be larger than a double holds.
if #policy < #sku[5] or (#policy == #sku[5] and policy < sku[5]) then
    return {8, 2, 2}
end

local free, epoch, sold_out = tonumber(sku[8]), tonumber(sku[6]), tonumber(sku[7])
if quantity == 0 or quantity > tonumber(sku[10]) then
    return {9}
end
if sold_out == 1 then
    return {2, epoch}
end
if free < quantity then
    return {9}
end
local raised = reservations_max + tonumber(sku[14]) * RESERVATIONS_PER_UNIT
if tonumber(sku[13]) >= math.min(raised, RESERVATIONS_MAX) then
    return {10}
end
if tonumber(sku[12]) > RESERVATIONS_MAX then
    return {10} -- each mending after a failover leaves numbers out
end

-- What is left can only be wrong here or in Redis itself; it is looked at while nothing is written.
if tonumber(keep_until) <= now then
    return redis.error_reply('WEIRARGS reserve: keep_until has passed; what it writes would be gone at once')
end
local id = sku[12]
if redis.call('HEXISTS', res_key, id) == 1 then
    return redis.error_reply('WEIRBOOKS ' .. res_key .. ': has the reservation that ' .. sku_key .. ' numbers next')
end
local is_first_pending = redis.call('ZCARD', pending_key) == 0
local version, sells_out = tonumber(sku[16]), free == quantity
if sells_out then
    redis.call('XLEN', events_key)
    epoch, sold_out, version = epoch + 1, 1, version + 1
end

local at = string.format('%d', now)
redis.call('XADD', orders_key, '*', 'v', '1', 'id', id, 'user', user, 'quantity', quantity, 'request_id', request_id,
    'minor', minor, 'currency', currency, 'at', at)
if sells_out then
    redis.call('XADD', events_key, 'MAXLEN', '~', EVENTS_MAX, '*', 'type', 'SOLD_OUT', 'epoch', epoch, 'at', at)
end
redis.call('HSET', res_key, id, string.format('0 %d %s %s %s %s %s %s %s', quantity, at, at, user, minor, currency,
    request_id, nonce))
redis.call('HSET', req_key, name, id)
redis.call('HSET', nonce_key, nonce, id)
redis.call('HSET', user_key, user, id)
redis.call('ZADD', pending_key, at, id)
if sells_out then
    redis.call('HSET', sku_key, 'epoch', epoch, 'sold_out', sold_out, 'version', version)
end
redis.call('HSET', sku_key, 'now', at, 'next', id + 1, 'reservations', sku[13] + 1, 'held', sku[9] + quantity, 'free',
    free - quantity)
-- Keys that only grow get their TTL once per keep_until; these two are made anew while the sale goes on.
if is_first_pending then
    redis.call('PEXPIREAT', pending_key, keep_until)
end
if sku[15] ~= keep_until then
    redis.call('HSET', sku_key, 'keep', keep_until)
    redis.call('PEXPIREAT', res_key, keep_until)
    redis.call('PEXPIREAT', req_key, keep_until)
    redis.call('PEXPIREAT', nonce_key, keep_until)
    redis.call('PEXPIREAT', user_key, keep_until)
    redis.call('PEXPIREAT', orders_key, keep_until)
    redis.call('PEXPIREAT', pending_key, keep_until)
end
if sells_out then
    redis.call('PEXPIREAT', events_key, keep_until)
    redis.pcall('PUBLISH', events_key, string.format('SOLD_OUT %d', epoch))
end
return {0, tonumber(id), 0, quantity, epoch, sold_out, now}

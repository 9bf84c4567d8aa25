-- What: after a failover, puts in what this server may have lost: a grant that an instance acknowledged, or a row of
-- the order store. Where it is there already it moves it on to the state offered, never back.
-- KEYS[1] sku HASH, KEYS[2] res HASH, KEYS[3] req HASH, KEYS[4] nonce HASH, KEYS[5] user HASH, KEYS[6] pending ZSET,
-- KEYS[7] orders STREAM, KEYS[8] events STREAM and channel.
-- ARGV[1] this server's name for itself, ARGV[2] reservation id, ARGV[3] its state, ARGV[4] quantity, ARGV[5] granted
-- at, ARGV[6] user, ARGV[7] price of a unit (minor), ARGV[8] its currency, ARGV[9] request id, ARGV[10] nonce or empty,
-- ARGV[11] keep_until_ms.
-- Returns: {13 NOW, id, state, quantity}: put in or moved; FAILED where its units are not to be had any more, {11
-- FOUND, id, state, quantity}: nothing to do, {3, id, state, quantity} the user holds another, {9} too few free units:
-- behind a fence both may change, offer it again, {7 NOT_OPEN}: the SKU is not here, or neither fenced nor at home.
-- Complexity: O(log n) of the unconfirmed reservations.
-- Writes: pending first (a command that Redis takes when its memory is full, and after one write it takes the others),
-- orders, events, res, req, nonce, user, sku; then TTLs and the hint.

local time = redis.call('TIME')
local sku_key, res_key, req_key, nonce_key, user_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local pending_key, orders_key, events_key = KEYS[6], KEYS[7], KEYS[8]
local here, id, to, quantity, at = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local user, minor, currency, request_id, nonce, keep_until = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11]
local EVENTS_MAX = 64 -- a reader that misses more has the snapshot
if not to or to > 5 or not quantity or quantity < 1 or not string.match(id, '^%d+$') or #id > 15
    or not string.match(at, '^%d+$') or #at > 15 or not string.match(keep_until, '^%d+$') or #keep_until > 15 then
    return redis.error_reply('WEIRARGS offer: an argument is missing, no number or out of range')
end
local sku = redis.call('HMGET', sku_key, 'now', 'home', 'fence', 'free', 'held', 'sold', 'sold_out', 'epoch', 'version',
    'next', 'reservations')
if not sku[1] or (sku[2] ~= here and sku[3] ~= here) then
    return {7}
end
local now = math.max(tonumber(sku[1]), time[1] * 1000 + math.floor(time[2] / 1000))
local is_fenced = (sku[3] or '') ~= ''
local free, held, sold = tonumber(sku[4]), tonumber(sku[5]), tonumber(sku[6])
local sold_out, epoch, version = tonumber(sku[7]), tonumber(sku[8]), tonumber(sku[9])
local after, reservations = tonumber(sku[10]), tonumber(sku[11])

local name = user .. ':' .. request_id
local known = redis.call('HGET', req_key, name)
local record = known and redis.call('HGET', res_key, known)
if known and not record then
    return redis.error_reply('WEIRBOOKS ' .. req_key .. ': names a reservation that is not in ' .. res_key)
end
local other = redis.call('HGET', user_key, user)
local others = other and redis.call('HGET', res_key, other)
local spent = nonce == '' or redis.call('HGET', nonce_key, nonce)
local is_taken = redis.call('HEXISTS', res_key, id) == 1
redis.call('XLEN', orders_key)
redis.call('XLEN', events_key)

-- Who joins the winners of a SKU that is sold out needs an epoch whose filter has him.
local units, rest, is_new, sells_out = quantity, '', not known, false
if known then
    local state, had, granted_at, behind = string.match(record, '^(%d) (%d+) (%d+) %d+ (.*)$')
    state, units, id, at, rest = tonumber(state), tonumber(had), known, granted_at, behind
    local ends = to >= 3
    -- A payment came after the release, and its units were sold again: that was lost, the release was not.
    local buys = to == 2 and (state == 3 or state == 4)
    if not (to == 1 and state == 0) and not (to == 2 and state <= 1) and not (ends and state <= 1)
        and not (to == 5 and (state == 3 or state == 4)) and not buys then
        return {11, tonumber(known), state, units}
    end
    if buys and free < units then
        return is_fenced and {9} or {11, tonumber(known), state, units}
    end
    if buys then
        free, sold = free - units, sold + units
        sells_out = not is_fenced and (sold_out == 1 or free == 0)
    elseif to == 2 then
        held, sold = held - units, sold + units
    elseif ends and state <= 1 then
        held, free = held - units, free + units
    end
else
    local holds = others and tonumber(string.sub(others, 1, 1)) <= 2
    if to <= 2 and holds and is_fenced then
        local state, had = string.match(others, '^(%d) (%d+) ')
        return {3, tonumber(other), tonumber(state), tonumber(had)}
    end
    if to <= 2 and free < units and is_fenced then
        return {9}
    end
    if to <= 2 and (holds or free < units) then
        to = 4
    end
    if to <= 2 then
        free = free - units
        sells_out = not is_fenced and (sold_out == 1 or free == 0)
        if to == 2 then
            sold = sold + units
        else
            held = held + units
        end
    end
    -- A number that was given again meanwhile stays with the one that has it.
    if is_taken then
        id = string.format('%d', after)
    end
    after, reservations = math.max(after, tonumber(id) + 1), reservations + 1
    rest = string.format('%s %s %s %s %s', user, minor, currency, request_id, nonce == '' and '-' or nonce)
end
if sells_out then
    epoch, sold_out, version = epoch + 1, 1, version + 1
end

redis.call('ZREM', pending_key, id)
if to == 0 then
    redis.call('XADD', orders_key, '*', 'v', '1', 'id', id, 'user', user, 'quantity', quantity, 'request_id',
        request_id, 'minor', minor, 'currency', currency, 'at', at)
end
if sells_out then
    redis.call('XADD', events_key, 'MAXLEN', '~', EVENTS_MAX, '*', 'type', 'SOLD_OUT', 'epoch', epoch, 'at', now)
end
redis.call('HSET', res_key, id, string.format('%d %d %s %d %s', to, units, at, now, rest))
if is_new then
    redis.call('HSET', req_key, name, id)
end
if is_new and not spent then
    redis.call('HSET', nonce_key, nonce, id)
end
if (is_new and (to <= 2 or not other)) or to == 2 then
    redis.call('HSET', user_key, user, id)
end
if to == 0 then
    redis.call('ZADD', pending_key, at, id)
end
redis.call('HSET', sku_key, 'now', now, 'free', free, 'held', held, 'sold', sold, 'sold_out', sold_out, 'epoch', epoch,
    'version', version, 'next', after, 'reservations', reservations)
redis.call('PEXPIREAT', res_key, keep_until)
redis.call('PEXPIREAT', req_key, keep_until)
redis.call('PEXPIREAT', nonce_key, keep_until)
redis.call('PEXPIREAT', user_key, keep_until)
redis.call('PEXPIREAT', pending_key, keep_until)
redis.call('PEXPIREAT', orders_key, keep_until)
redis.call('PEXPIREAT', events_key, keep_until)
if sells_out then
    redis.pcall('PUBLISH', events_key, string.format('SOLD_OUT %d', epoch))
end
return {13, tonumber(id), to, units}

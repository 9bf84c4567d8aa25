-- What: a token bucket of one key, by the contract of seed 000 §9.2: a key that is not there is full, because its TTL
-- is at least twice the time to fill. Exact: thousandths of tokens and of rates are whole numbers, what is left of a
-- thousandth is kept, nothing is rounded.
-- KEYS[1] bucket HASH tokens_milli, rest (millionths), ts_ms.
-- ARGV[1] tokens per second, at most three decimals, 0.001..10^9, ARGV[2] capacity, whole, 1..10^12, ARGV[3] cost,
-- whole, ARGV[4] TTL in ms, whole. It takes at most 10^12 s to fill.
-- Returns: {code, remaining_milli_tokens, retry_after_ms, redis_now_ms}; code 1 allowed, 0 limited: after the wait it
-- passes if nobody else takes, and not 1 ms earlier, -1 a bad argument, -2 the cost is above the capacity.
-- Complexity: O(1).
-- Writes: bucket, its TTL; nothing unless allowed, so a flood neither writes nor keeps a key alive.

local time = redis.call('TIME')
local bucket_key, rate, ttl_ms = KEYS[1], ARGV[1] or '', ARGV[4] or ''
local whole, decimals = string.match(rate, '^(%d+)%.?(%d*)$')
if #KEYS ~= 1 or not whole or #whole > 10 or #decimals > 3 or not string.match(ARGV[2] or '', '^%d+$')
    or not string.match(ARGV[3] or '', '^%d+$') or #ARGV[2] > 13 or #ARGV[3] > 15 or not string.match(ttl_ms, '^%d+$')
    or #ttl_ms > 13 then
    return {-1, 0, 0, 0}
end
-- From here on, milli is a thousandth of a token, and rate_milli thousandths of a token per second: millionths per ms.
local rate_milli = whole * 1000 + string.sub(decimals .. '000', 1, 3)
local capacity_milli, cost_milli = ARGV[2] * 1000, ARGV[3] * 1000
local fill_s = math.floor(capacity_milli / math.max(rate_milli, 1))
if rate_milli < 1 or rate_milli > 1000000000000 or capacity_milli < 1 or capacity_milli > 1000000000000000
    or cost_milli < 1 or tonumber(ttl_ms) < 1 or fill_s > 1000000000000 then
    return {-1, 0, 0, 0}
end
if cost_milli > capacity_milli then
    return {-2, 0, 0, 0}
end

local state = redis.call('HMGET', bucket_key, 'tokens_milli', 'rest', 'ts_ms')
local now_ms = math.max(tonumber(state[3] or 0), time[1] * 1000 + math.floor(time[2] / 1000))
local tokens_milli, rest = capacity_milli, 0
if state[1] then
    -- Whole seconds and the rest of one apart, so that no product leaves what a double holds.
    local elapsed_ms = now_ms - state[3]
    local elapsed_s = math.floor(elapsed_ms / 1000)
    if elapsed_s <= fill_s then
        local millionths = elapsed_ms % 1000 * rate_milli + state[2]
        tokens_milli = state[1] + elapsed_s * rate_milli + math.floor(millionths / 1000)
        rest = millionths % 1000
    end
    if tokens_milli >= capacity_milli then
        tokens_milli, rest = capacity_milli, 0
    end
end
if tokens_milli < cost_milli then
    local deficit_milli = cost_milli - tokens_milli
    local wait_s = math.floor(deficit_milli / rate_milli)
    local millionths = deficit_milli % rate_milli * 1000 - rest
    local wait_ms = wait_s * 1000 + math.floor((millionths + rate_milli - 1) / rate_milli)
    return {0, tokens_milli, wait_ms, now_ms}
end
tokens_milli = tokens_milli - cost_milli
ttl_ms = math.max(tonumber(ttl_ms), (fill_s + 1) * 2000)

redis.call('HSET', bucket_key, 'tokens_milli', string.format('%d', tokens_milli), 'rest', string.format('%d', rest),
    'ts_ms', string.format('%d', now_ms))
redis.call('PEXPIRE', bucket_key, string.format('%d', ttl_ms))
return {1, tokens_milli, 0, now_ms}

-- What: makes the bucket of a SKU's admission budget, or changes its rate (R_admit); an older policy is refused. A new
-- bucket is empty and its rate climbs in eight steps of 125 ms (J6); a missing one is "not open" to everybody else.
-- KEYS[1] lease HASH.
-- ARGV[1] policy version, ARGV[2] thousandths of a token per second, 0..5*10^9, ARGV[3] burst in tokens, 1..10^6,
-- ARGV[4] sum of the instances' weights, 1..10^6, ARGV[5] TTL of an unused bucket in ms.
-- Returns: {code, boot, now_ms, rate, weights, version}: what holds now; code 1 APPLIED, 2 KEPT: the same version,
-- which changes nothing, 0 OLDER: a newer one holds.
-- Complexity: O(1).
-- Writes: lease, its TTL. What is saved is kept up to the new burst: a raise adds speed, never tokens at once.

local time = redis.call('TIME')
local lease_key, policy, ttl_ms = KEYS[1], ARGV[1], ARGV[5]
local rate, burst, weights = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local UNITS_PER_TOKEN, STEP_US, STEPS = 8000000000, 125000, 8 -- a step of a us refills whole units
if not string.match(policy or '', '^%d+$') or not string.match(ttl_ms or '', '^%d+$') or #ttl_ms > 15
    or not string.match(ARGV[2], '^%d+$') or not string.match(ARGV[3], '^%d+$') or not string.match(ARGV[4], '^%d+$')
    or rate > 5000000000 or burst < 1 or burst > 1000000 or weights < 1 or weights > 1000000
    or tonumber(ttl_ms) < 1 then
    return redis.error_reply('WEIRARGS lease_policy: an argument is missing, no number or out of range')
end
local lease = redis.call('HMGET', lease_key, 'at_us', 'opened_us', 'units', 'rate', 'burst', 'policy', 'weights')
local now_us = math.max(tonumber(lease[1] or 0), time[1] * 1000000 + time[2])
local now_ms = math.floor(now_us / 1000)
local units, opened_us, answer = 0, now_us, 1
if lease[1] then
    opened_us = tonumber(lease[2])
    if #policy < #lease[6] or (#policy == #lease[6] and policy < lease[6]) then
        return {0, opened_us, now_ms, tonumber(lease[4]), tonumber(lease[7]), lease[6]}
    end
    -- Up to now by the old rate, at the step that was reached when it was counted last: never more than the climb gave.
    local step = math.min(STEPS, math.floor((lease[1] - opened_us) / STEP_US) + 1)
    local speed, full = lease[4] * step, lease[5] * UNITS_PER_TOKEN
    units = tonumber(lease[3])
    if speed > 0 and now_us - lease[1] > math.floor((full - units) / speed) then
        units = full
    else
        units = units + (now_us - lease[1]) * speed
    end
    if policy == lease[6] then
        answer, rate, burst, weights = 2, tonumber(lease[4]), tonumber(lease[5]), tonumber(lease[7])
    end
    units = math.min(units, burst * UNITS_PER_TOKEN)
end

redis.call('HSET', lease_key, 'at_us', now_us, 'opened_us', opened_us, 'units', units, 'rate', rate, 'burst', burst,
    'weights', weights, 'policy', policy)
redis.call('PEXPIRE', lease_key, ttl_ms)
return {answer, opened_us, now_ms, rate, weights, policy}

-- What: a batch of admission tokens for one instance, deducted before the answer leaves: a crash only admits fewer.
-- KEYS[1] lease HASH, KEYS[2] lines HASH instance -> bucket's boot, boot, boot before, seq, tokens, returned seq,
-- outstanding.
-- ARGV[1] instance, ARGV[2] its boot, ARGV[3] seq, from 1, ARGV[4] tokens wanted, ARGV[5] its weight, 1..1000, ARGV[6]
-- TTL of bucket and lines in ms.
-- Returns: {code, tokens, seq, boot of the bucket, ttl_ms, retry_ms, now_ms}; code 1 GRANTED (0..wanted tokens),
-- 2 REPEATED (the same seq: the same tokens), 0 STALE (an older seq or run), -1 NOT_OPEN (no bucket), -2 FULL.
-- Complexity: O(1).
-- Writes: lines (it grows memory), lease; their TTLs; nothing unless GRANTED.

local time = redis.call('TIME')
local lease_key, lines_key, instance, boot, ttl_ms = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[6]
local seq, want, weight = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local UNITS_PER_TOKEN, STEP_US, STEPS = 8000000000, 125000, 8 -- as in lease_policy
local LEASE_TTL_MS, RETRY_MS, TOKENS_MIN, LINES_MAX = 3000, 10, 32, 1024 -- limits.rs
if not string.match(ARGV[3], '^%d+$') or #ARGV[3] > 15 or seq < 1 or not string.match(ARGV[4], '^%d+$')
    or want > 1000000000 or not string.match(ARGV[5], '^%d+$') or weight < 1 or weight > 1000
    or not string.match(boot, '^%d+$') or not string.match(ttl_ms, '^%d+$') or #ttl_ms > 15 or tonumber(ttl_ms) < 1 then
    return redis.error_reply('WEIRARGS lease_draw: an argument is missing, no number or out of range')
end
local lease = redis.call('HMGET', lease_key, 'at_us', 'opened_us', 'units', 'rate', 'burst', 'weights')
if not lease[1] then
    return {-1, 0, seq, 0, 0, 0, time[1] * 1000 + math.floor(time[2] / 1000)}
end
local at_us, opened_us = tonumber(lease[1]), tonumber(lease[2])
local now_us = math.max(at_us, time[1] * 1000000 + time[2])
local now_ms = math.floor(now_us / 1000)

local line = redis.call('HGET', lines_key, instance)
local boot_before, returned_seq, outstanding = '', 0, 0
local bucket, line_boot, before, line_seq, drawn, returned, out =
    string.match(line or '', '^(%d+) (%d+) (%d*) (%d+) (%d+) (%d+) (%d+)$')
-- What was drawn from an earlier bucket is void with it, and its line says nothing.
if bucket == lease[2] then
    if boot == before then
        return {0, 0, seq, opened_us, 0, 0, now_ms}
    end
    boot_before = line_boot
    if boot == line_boot then
        if seq < tonumber(line_seq) then
            return {0, 0, seq, opened_us, 0, 0, now_ms}
        end
        if seq == tonumber(line_seq) then
            return {2, tonumber(drawn), seq, opened_us, LEASE_TTL_MS, RETRY_MS, now_ms}
        end
        boot_before, returned_seq, outstanding = before, tonumber(returned), tonumber(out)
    end
elseif not line and redis.call('HLEN', lines_key) >= LINES_MAX then
    return {-2, 0, seq, opened_us, 0, 0, now_ms}
end

-- What came in since the last time, at the step of the climb that was reached then: never more than the climb gave.
local step = math.min(STEPS, math.floor((at_us - opened_us) / STEP_US) + 1)
local units, speed, full = tonumber(lease[3]), lease[4] * step, lease[5] * UNITS_PER_TOKEN
if speed > 0 and now_us - at_us > math.floor((full - units) / speed) then
    units = full
else
    units = units + (now_us - at_us) * speed
end
local saved = math.floor(units / UNITS_PER_TOKEN)
-- No instance takes more than its share by weight of what is saved, unless that is hardly anything (D2).
local part = math.max(math.floor(saved * weight / lease[6]), TOKENS_MIN)
local tokens = math.min(want, part, saved)

redis.call('HSET', lines_key, instance, string.format('%s %s %s %d %d %d %d', lease[2], boot, boot_before, seq, tokens,
    returned_seq, outstanding + tokens))
redis.call('HSET', lease_key, 'units', units - tokens * UNITS_PER_TOKEN, 'at_us', now_us)
redis.call('PEXPIRE', lines_key, ttl_ms)
redis.call('PEXPIRE', lease_key, ttl_ms)
return {1, tokens, seq, opened_us, LEASE_TTL_MS, RETRY_MS, now_ms}

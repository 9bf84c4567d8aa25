-- What: unused tokens come back, once per seq, never more than that instance drew in this run.
-- KEYS[1] lease HASH, KEYS[2] lines HASH.
-- ARGV[1] instance, ARGV[2] its boot, ARGV[3] seq of its last grant, ARGV[4] tokens, ARGV[5] boot of the bucket that
-- granted them.
-- Returns: {1 CREDITED, tokens, now_ms}, {0 VOID, 0, now_ms}: repeated, or of another run or bucket, {-1 NOT_OPEN, 0,
-- now_ms}.
-- Complexity: O(1).
-- Writes: lines, lease (both are there and keep their TTL; neither grows); nothing unless CREDITED.

local time = redis.call('TIME')
local lease_key, lines_key, instance, boot = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local seq, back = tonumber(ARGV[3]), tonumber(ARGV[4])
local UNITS_PER_TOKEN, STEP_US, STEPS = 8000000000, 125000, 8 -- as in lease_policy
if not string.match(ARGV[3], '^%d+$') or #ARGV[3] > 15 or not string.match(ARGV[4], '^%d+$') or back > 1000000000
    or not string.match(boot, '^%d+$') then
    return redis.error_reply('WEIRARGS lease_return: an argument is missing, no number or out of range')
end
local lease = redis.call('HMGET', lease_key, 'at_us', 'opened_us', 'units', 'rate', 'burst')
if not lease[1] then
    return {-1, 0, time[1] * 1000 + math.floor(time[2] / 1000)}
end
local at_us, opened_us = tonumber(lease[1]), tonumber(lease[2])
local now_us = math.max(at_us, time[1] * 1000000 + time[2])
local now_ms = math.floor(now_us / 1000)
local line = redis.call('HGET', lines_key, instance)
local bucket, line_boot, before, line_seq, drawn, returned_seq, outstanding =
    string.match(line or '', '^(%d+) (%d+) (%d*) (%d+) (%d+) (%d+) (%d+)$')
if ARGV[5] ~= lease[2] or bucket ~= lease[2] or line_boot ~= boot or seq <= tonumber(returned_seq)
    or seq > tonumber(line_seq) then
    return {0, 0, now_ms}
end
local credited = math.min(back, tonumber(outstanding))
local step = math.min(STEPS, math.floor((at_us - opened_us) / STEP_US) + 1)
local units, speed, full = tonumber(lease[3]), lease[4] * step, lease[5] * UNITS_PER_TOKEN
if speed > 0 and now_us - at_us > math.floor((full - units) / speed) then
    units = full
else
    units = units + (now_us - at_us) * speed
end

redis.call('HSET', lines_key, instance, string.format('%s %s %s %s %s %d %d', bucket, line_boot, before, line_seq,
    drawn, seq, outstanding - credited))
redis.call('HSET', lease_key, 'units', math.min(full, units + credited * UNITS_PER_TOKEN), 'at_us', now_us)
return {1, credited, now_ms}

-- What: a sliding window that remembers every entry: exact, for keys with low rates and dear actions.
-- KEYS[1] log ZSET of entry numbers by ms.
-- ARGV[1] window in ms, 1..86400000, ARGV[2] most entries in a window, 1..1024.
-- Returns: {code, remaining, retry_after_ms, redis_now_ms}; code 1 allowed, 0 limited: after the wait it passes if
-- nobody else takes, and not 1 ms earlier, -1 a bad argument.
-- Complexity: O(log n + entries that have left), n at most the limit.
-- Writes: log: the new entry, then away with those that have left; its TTL; nothing unless allowed.

local time = redis.call('TIME')
local log_key, window_ms, limit = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
if #KEYS ~= 1 or not string.match(ARGV[1] or '', '^%d+$') or not string.match(ARGV[2] or '', '^%d+$')
    or window_ms < 1 or window_ms > 86400000 or limit < 1 or limit > 1024 then
    return {-1, 0, 0, 0}
end
-- The newest entry has the last time and the last number; a member of its own keeps two of one ms apart, and all are of
-- one width, because entries of one ms are sorted as texts.
local newest = redis.call('ZRANGE', log_key, '-1', '-1', 'WITHSCORES')
local now_ms = math.max(tonumber(newest[2] or 0), time[1] * 1000 + math.floor(time[2] / 1000))
local left_ms = now_ms - window_ms -- what is not later than this has left
local live = redis.call('ZCOUNT', log_key, string.format('(%d', left_ms), '+inf')
if live >= limit then
    local must_leave = string.format('%d', live - limit)
    local last = redis.call('ZRANGEBYSCORE', log_key, string.format('(%d', left_ms), '+inf', 'WITHSCORES', 'LIMIT',
        must_leave, '1')
    return {0, 0, last[2] - left_ms, now_ms}
end

redis.call('ZADD', log_key, now_ms, string.format('%016d', (newest[1] or 0) + 1))
redis.call('ZREMRANGEBYSCORE', log_key, '-inf', left_ms)
redis.call('PEXPIRE', log_key, window_ms)
return {1, limit - live - 1, 0, now_ms}

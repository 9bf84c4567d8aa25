-- What: behind a fence, gives a SKU what was ever put on sale, by the order store's word: where this server lost the
-- SKU it is made anew, fenced and without reservations; where it lost restocks each is added, and known by its request
-- id from then on: its repetition adds nothing. What this server has and the order store does not know stays.
-- KEYS[1] sku HASH, KEYS[2] ops HASH, KEYS[3] res HASH, KEYS[4] req HASH, KEYS[5] user HASH, KEYS[6] pending ZSET.
-- ARGV[1] this server's name for itself, ARGV[2] total units, ARGV[3] quantity_max, ARGV[4] once per activity 0..1,
-- ARGV[5] policy version, ARGV[6] the largest epoch that the asker has heard of, ARGV[7] the order store's number,
-- ARGV[8] its run, ARGV[9] keep_until_ms, ARGV[10] how many restocks of the total follow, 0..64; behind them the
-- request id, the time (ms) and the units of each, oldest first.
-- Returns: {17 STEP, epoch, version, changed 0..1}.
-- Complexity: O(restocks).
-- Writes: ops first (it grows memory), sku, the TTL; nothing when it has as many and knows them, is there and not
-- fenced, or has another maker of orders (take.lua).

local time = redis.call('TIME')
local sku_key, here, total, quantity_max, once, policy = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local ops_key, res_key, req_key, user_key, pending_key = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local heard, store, run, keep_until, count = tonumber(ARGV[6]), ARGV[7], ARGV[8], ARGV[9], tonumber(ARGV[10])
local UNITS_MAX = 1099511627776 -- limits.rs
local RESTOCKS_MAX = 64 -- limits.rs
-- Clocks of those who told of restocks are no further apart.
local CLOCKS_APART_MS = 3600000
if not here or here == '' or #here > 100 or not string.match(total, '^%d+$') or tonumber(total) > UNITS_MAX
    or not string.match(quantity_max, '^%d+$') or not string.match(once, '^[01]$') or not string.match(policy, '^%d+$')
    or not heard or heard > UNITS_MAX or not string.match(store, '^%d+$') or not string.match(run, '^%d+$')
    or not string.match(keep_until, '^%d+$') or #keep_until > 15 or not count or count > RESTOCKS_MAX
    or #ARGV ~= 10 + 3 * count then
    return redis.error_reply('WEIRARGS restore: an argument is missing, no number or out of range')
end
local names, ats, units = {}, {}, {}
for at = 1, RESTOCKS_MAX do
    if at <= count then
        names[at] = 'r:' .. ARGV[8 + 3 * at]
        ats[at], units[at] = tonumber(ARGV[9 + 3 * at]), tonumber(ARGV[10 + 3 * at])
        if not ats[at] or not units[at] or units[at] > UNITS_MAX then
            return redis.error_reply('WEIRARGS restore: a restock has no time or no units')
        end
    end
end
local sku = redis.call('HMGET', sku_key, 'now', 'fence', 'total', 'free', 'epoch', 'version', 'maker',
    'run', 'restocked')
local log = redis.call('HMGET', ops_key, 'first', 'next')
local known = count > 0 and redis.call('HMGET', ops_key, unpack(names)) or {}
local oldest_id = redis.call('HGET', ops_key, 'n:' .. (log[1] or '0'))
local oldest = oldest_id and redis.call('HGET', ops_key, 'r:' .. oldest_id)
local begins = tonumber(oldest and string.match(oldest, '^%d+') or 0)
local maker, last = sku[7] or store, sku[7] and sku[8] or '0' -- a run is one of its store
local is_ours = maker == store and (#last < #run or (#last == #run and last <= run))
if sku[1] and (sku[2] ~= here or not is_ours) then
    return {17, tonumber(sku[5]), tonumber(sku[6]), 0}
end
if not sku[1] and redis.call('EXISTS', sku_key) == 1 then
    return redis.error_reply('WEIRBOOKS ' .. sku_key .. ': holds what is not of weir: move it, or use another Redis')
end
-- Offered again, the reservations that stand would be found there, and their units counted as free.
if not sku[1] and (redis.call('EXISTS', ops_key) == 1 or redis.call('EXISTS', res_key) == 1
    or redis.call('EXISTS', req_key) == 1 or redis.call('EXISTS', user_key) == 1
    or redis.call('EXISTS', pending_key) == 1) then
    return redis.error_reply('WEIRBOOKS ' .. sku_key .. ' is gone, but not all of ' .. ops_key .. ' ' .. res_key .. ' '
        .. req_key .. ' ' .. user_key .. ' ' .. pending_key .. ': delete these, too; all of them are made anew then')
end
local now = math.max(tonumber(sku[1] or 0), time[1] * 1000 + math.floor(time[2] / 1000))

-- Without its log a SKU does not say what it lacks, nor when the log has ended: the total does. So it is with restocks
-- from before the log: it was made anew, or has forgotten its oldest.
local first, after = tonumber(log[1] or 0), tonumber(log[2] or 0)
begins = begins > 0 and begins + (first == 0 and -CLOCKS_APART_MS or CLOCKS_APART_MS) or 0
local is_logged = log[2] and tonumber(keep_until) > now
local lost, more, fields = 0, 0, {}
for at = 1, RESTOCKS_MAX do
    local is_due = at <= count and not known[at] and tonumber(keep_until) > now
    if is_due and ats[at] >= begins then
        fields[#fields + 1] = names[at]
        fields[#fields + 1] = string.format('%d restock %d', now, units[at])
        fields[#fields + 1] = string.format('n:%d', after + lost)
        fields[#fields + 1] = string.sub(names[at], 3)
        lost, more = lost + 1, more + units[at]
    end
end
if sku[1] then
    local all = tonumber(sku[3]) + (is_logged and more or 0)
    more = math.min(math.max(all, tonumber(total)), UNITS_MAX) - tonumber(sku[3])
end
local restocked = tonumber(sku[9] or 0) + more
if sku[1] and more <= 0 and lost == 0 then
    return {17, tonumber(sku[5]), tonumber(sku[6]), 0}
end
local epoch, version = tonumber(sku[5] or 1), (sku[6] or 0) + 1

if lost > 0 then
    redis.call('HSET', ops_key, 'first', first, 'next', after + lost, unpack(fields))
end
if sku[1] then
    redis.call('HSET', sku_key, 'now', now, 'total', sku[3] + more, 'free', sku[4] + more, 'restocked', restocked,
        'version', version)
else
    redis.call('HSET', sku_key, 'now', now, 'open', '1', 'mode', '0', 'frozen', '', 'policy', policy, 'version', '1',
        'epoch', '1', 'sold_out', '0', 'quantity_max', quantity_max, 'once', once, 'next', '1', 'reservations', '0',
        'restocked', restocked, 'keep', '', 'sold', '0', 'quarantined', '0', 'held', '0', 'total', total, 'free', total,
        'home', '', 'fence', here, 'fenced', now, 'heard', heard, 'maker', store, 'run', run)
end
if lost > 0 then
    redis.call('PEXPIREAT', ops_key, keep_until)
end
return {17, epoch, version, 1}

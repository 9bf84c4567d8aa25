-- What: behind a fence, gives a SKU all units that were ever put on sale, by the order store's word: where this server
-- lost the SKU it is made anew, fenced and without reservations; where it lost a restock the units are added.
-- KEYS[1] sku HASH.
-- ARGV[1] this server's name for itself, ARGV[2] total units, ARGV[3] quantity_max, ARGV[4] once per activity 0..1,
-- ARGV[5] policy version, ARGV[6] the largest epoch that the asker has heard of, ARGV[7] the order store's number,
-- ARGV[8] its run.
-- Returns: {17 STEP, epoch, version, changed 0..1}.
-- Complexity: O(1).
-- Writes: sku; nothing when it has as many, is there and not fenced, or has another maker of orders (take.lua).

local time = redis.call('TIME')
local sku_key, here, total, quantity_max, once, policy = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local heard, store, run = tonumber(ARGV[6]), ARGV[7], ARGV[8]
local UNITS_MAX = 1099511627776 -- limits.rs
if not here or here == '' or #here > 100 or not string.match(total, '^%d+$') or tonumber(total) > UNITS_MAX
    or not string.match(quantity_max, '^%d+$') or not string.match(once, '^[01]$') or not string.match(policy, '^%d+$')
    or not heard or heard > UNITS_MAX or not string.match(store, '^%d+$') or not string.match(run, '^%d+$') then
    return redis.error_reply('WEIRARGS restore: an argument is missing, no number or out of range')
end
local sku = redis.call('HMGET', sku_key, 'now', 'fence', 'total', 'free', 'epoch', 'version', 'maker',
    'run')
local more = tonumber(total) - (sku[3] or 0)
local maker, last = sku[7] or store, sku[8] or '0'
local is_ours = maker == store and (#last < #run or (#last == #run and last <= run))
if sku[1] and (sku[2] ~= here or more <= 0 or not is_ours) then
    return {17, tonumber(sku[5]), tonumber(sku[6]), 0}
end
local now = math.max(tonumber(sku[1] or 0), time[1] * 1000 + math.floor(time[2] / 1000))
if not sku[1] and redis.call('EXISTS', sku_key) == 1 then
    return redis.error_reply('WEIRBOOKS ' .. sku_key .. ': holds what is not of weir: move it, or use another Redis')
end
local epoch, version = tonumber(sku[5] or 1), (sku[6] or 0) + 1

if sku[1] then
    redis.call('HSET', sku_key, 'now', now, 'total', total, 'free', sku[4] + more, 'version', version)
else
    redis.call('HSET', sku_key, 'now', now, 'open', '1', 'mode', '0', 'frozen', '', 'policy', policy, 'version', '1',
        'epoch', '1', 'sold_out', '0', 'quantity_max', quantity_max, 'once', once, 'next', '1', 'reservations', '0',
        'restocked', '0', 'keep', '', 'sold', '0', 'quarantined', '0', 'held', '0', 'total', total, 'free', total,
        'home', '', 'fence', here, 'fenced', now, 'heard', heard, 'maker', store, 'run', run)
end
return {17, epoch, version, 1}

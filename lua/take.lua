-- What: hands the one maker of orders the next messages of the outbox stream, and forgets those that it needs no more.
-- KEYS[1] sku HASH, KEYS[2] res HASH, KEYS[3] orders STREAM.
-- ARGV[1] the order store's number, ARGV[2] its run, larger than its earlier ones, ARGV[3] most new messages, 0..64,
-- ARGV[4] from this id on also what was handed out before and not forgotten; empty: none of it, ARGV[5] so many ms ago
-- or more, ARGV[6] how many ids of messages to forget follow, 0..64; behind them at most 64 reservations to look at.
-- Returns: {20 TAKEN, total units, what XAUTOCLAIM says or null, what XREADGROUP says or null, {record ...}},
-- {21 ELSEWHERE, number, run} (another store, or a later run of this one, makes the orders) or {7 NOT_OPEN}.
-- Complexity: O(log n of the messages + page).
-- Writes: orders (XACK, XDEL, XGROUP, XAUTOCLAIM, XREADGROUP: all but XGROUP are taken when the memory is full), then
-- sku when the maker is new.

local time = redis.call('TIME')
local sku_key, res_key, orders_key, store, run = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2]
local count, from, idle_ms, done = tonumber(ARGV[3]), ARGV[4], ARGV[5], tonumber(ARGV[6])
if not count or count > 64 or not done or done > 64 or #ARGV < 6 + done or #ARGV > 70 + done
    or not string.match(store, '^%d+$') or not string.match(run, '^%d+$') or not string.match(idle_ms, '^%d+$') then
    return redis.error_reply('WEIRARGS take: an argument is missing, no number or out of range')
end
local sku = redis.call('HMGET', sku_key, 'total', 'maker', 'run')
if not sku[1] then
    return {7}
end
-- Runs are compared as decimal digits: they may be larger than a double holds.
local maker, last = sku[2] or store, sku[2] and sku[3] or '0' -- a run is one of its store
if maker ~= store or #last > #run or (#last == #run and last > run) then
    return {21, maker, last}
end
local has_stream = redis.call('EXISTS', orders_key) == 1
local groups, records = {}, {}
if has_stream then
    groups = redis.call('XINFO', 'GROUPS', orders_key)
end
if #ARGV > 6 + done then
    records = redis.call('HMGET', res_key, unpack(ARGV, 7 + done))
end

-- Of a reply of Redis' own the second element is the group's name; another application may have made one, too.
local is_grouped = false
for at = 1, 8 do
    is_grouped = is_grouped or (groups[at] ~= nil and groups[at][2] == 'weir')
end

local claimed, fresh = false, false
if done > 0 then
    redis.call('XACK', orders_key, 'weir', unpack(ARGV, 7, 6 + done))
    redis.call('XDEL', orders_key, unpack(ARGV, 7, 6 + done))
end
if has_stream and not is_grouped then
    redis.call('XGROUP', 'CREATE', orders_key, 'weir', '0')
end
if has_stream and from ~= '' then
    claimed = redis.call('XAUTOCLAIM', orders_key, 'weir', store, idle_ms, from, 'COUNT', 64)
end
if has_stream and count > 0 then
    fresh = redis.call('XREADGROUP', 'GROUP', 'weir', store, 'COUNT', count, 'STREAMS', orders_key, '>')
end
if sku[2] ~= store or last ~= run then
    redis.call('HSET', sku_key, 'maker', store, 'run', run)
end
return {20, tonumber(sku[1]), claimed, fresh, records}

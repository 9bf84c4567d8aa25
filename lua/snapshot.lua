-- What: the state of a SKU, and a page of the users who hold or bought: what the winners' filter is made of.
-- KEYS[1] sku HASH, KEYS[2] user HASH, KEYS[3] pending ZSET.
-- ARGV[1] cursor, 0 for the first page, ARGV[2] about how many users, 1..1024; 0 for none.
-- Returns: {18 SNAPSHOT, version, epoch, sold_out, open, mode, frozen 0..1, policy, quantity_max, once, total, free,
-- held, sold, quarantined, reservations, now_ms, reason of the freeze, next cursor, {user, id, user, id ...}, home,
-- fence, fenced at, granted at of the oldest unconfirmed reservation} or {7 NOT_OPEN}. Without an unconfirmed one
-- the last is now_ms. Texts: policy, reason, cursor, users, ids and all behind them. Pages are complete for an epoch
-- when the first and the last one show it and it is sold out: no grant came between. A user may come twice (HSCAN).
-- Complexity: O(users asked for); a hash that Redis keeps packed (at most 512 users by default) comes in one page.
-- Writes: nothing.

local time = redis.call('TIME')
local sku_key, user_key, pending_key, cursor, count = KEYS[1], KEYS[2], KEYS[3], ARGV[1], tonumber(ARGV[2])
if not count or count > 1024 or not string.match(cursor, '^%d+$') then
    return redis.error_reply('WEIRARGS snapshot: a cursor is a number, a page has at most 1024 users')
end
local sku = redis.call('HMGET', sku_key, 'now', 'version', 'epoch', 'sold_out', 'open', 'mode', 'frozen', 'policy',
    'quantity_max', 'once', 'total', 'free', 'held', 'sold', 'quarantined', 'reservations', 'home', 'fence', 'fenced')
if not sku[1] then
    return {7}
end
local now = math.max(tonumber(sku[1]), time[1] * 1000 + math.floor(time[2] / 1000))
local oldest = redis.call('ZRANGEBYSCORE', pending_key, '-inf', '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local page = {'0', {}}
if count > 0 then
    page = redis.call('HSCAN', user_key, cursor, 'COUNT', count)
end
return {18, tonumber(sku[2]), tonumber(sku[3]), tonumber(sku[4]), tonumber(sku[5]), tonumber(sku[6]),
    sku[7] == '' and 0 or 1, sku[8], tonumber(sku[9]), tonumber(sku[10]), tonumber(sku[11]), tonumber(sku[12]),
    tonumber(sku[13]), tonumber(sku[14]), tonumber(sku[15]), tonumber(sku[16]), now, sku[7], page[1], page[2],
    sku[17] or '', sku[18] or '', sku[19] or '0', oldest[2] or string.format('%d', now)}

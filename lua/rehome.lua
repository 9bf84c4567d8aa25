-- What: the books are right at this server from here on. Either a slot was moved to it, with every grant (from names
-- the server it came from), or they were mended behind a fence (from is empty): the fence goes, the epoch grows above
-- every one that was shown, the mark is set anew from the stock, and numbers of lost grants are left out.
-- KEYS[1] sku HASH, KEYS[2] events STREAM and channel.
-- ARGV[1] keep_until_ms, ARGV[2] the largest epoch that the asker has heard of, ARGV[3] from, ARGV[4] this server's
-- name for itself, replication id:run id, ARGV[5] the order store that mended them, ARGV[6] its run; both empty with
-- from.
-- Returns: {17 STEP, epoch, version, changed 0..1} or {7 NOT_OPEN}.
-- Complexity: O(1).
-- Writes: events (it grows memory), sku; then the TTL and the hint; nothing when neither of the two is so, or when
-- another store, or a later run of this one, makes the orders (take.lua): who has not got them has mended nothing.

local time = redis.call('TIME')
local sku_key, events_key, keep_until, heard = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])
local from, here, store, run = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local EVENTS_MAX = 64 -- a reader that misses more has the snapshot
local EPOCH_MAX = 1099511627776 -- above every epoch that a sale reaches, far below what a double holds
local NUMBERS_LEFT_OUT = 10000 -- more grants than can be under way
local EPOCHS_LEFT_OUT = 1000 -- more than an instance can have shown that nobody hears now
if not string.match(keep_until, '^%d+$') or #keep_until > 15 or not heard or heard > EPOCH_MAX or not from
    or not here or here == '' or #here > 100 or not store or not run
    or (from == '' and not (string.match(store, '^%d+$') and string.match(run, '^%d+$'))) then
    return redis.error_reply('WEIRARGS rehome: an argument is missing, no number or out of range')
end
local sku = redis.call('HMGET', sku_key, 'now', 'home', 'fence', 'heard', 'epoch', 'version', 'free', 'next', 'maker',
    'run')
if not sku[1] then
    return {7}
end
local fence = sku[3] or ''
local epoch, version = tonumber(sku[5]), tonumber(sku[6])
local is_moved = from ~= '' and fence == '' and sku[2] == from
local maker, last = sku[9] or store, sku[9] and sku[10] or '0' -- a run is one of its store
local is_ours = maker == store and (#last < #run or (#last == #run and last <= run))
local is_mended = from == '' and fence == here and is_ours
if not is_moved and not is_mended then
    return {17, epoch, version, 0}
end
local now = math.max(tonumber(sku[1]), time[1] * 1000 + math.floor(time[2] / 1000))
version = version + 1
if is_mended then
    epoch = math.max(epoch, heard, tonumber(sku[4] or 0)) + EPOCHS_LEFT_OUT
end
local sold_out = sku[7] == '0'
local event = sold_out and 'SOLD_OUT' or 'STOCK_REOPENED'

if is_mended then
    redis.call('XADD', events_key, 'MAXLEN', '~', EVENTS_MAX, '*', 'type', event, 'epoch', epoch, 'at', now)
    redis.call('HSET', sku_key, 'fence', '', 'fenced', '0', 'heard', '0', 'sold_out', sold_out and '1' or '0', 'epoch',
        epoch, 'next', sku[8] + NUMBERS_LEFT_OUT)
    redis.call('PEXPIREAT', events_key, keep_until)
end
redis.call('HSET', sku_key, 'now', now, 'home', here, 'version', version)
if is_mended then
    redis.pcall('PUBLISH', events_key, string.format('%s %d', event, epoch))
end
return {17, epoch, version, 1}

-- The ledger's reserve as a script: nonce, request id, one unit per user, stock, in one step. Answers as weir decides.
if redis.call('EXISTS', KEYS[2]) == 1 then return 'REPLAY_REJECTED' end
if redis.call('EXISTS', KEYS[3]) == 1 then return 'REQUEST_REPLAYED' end
if redis.call('EXISTS', KEYS[4]) == 1 then return 'ALREADY_PURCHASED' end
if tonumber(redis.call('GET', KEYS[1]) or '0') < 1 then return 'SECKILL_SOLD_OUT' end
local left = redis.call('DECR', KEYS[1])
redis.call('SET', KEYS[2], '1', 'EX', 7200)
redis.call('SET', KEYS[3], 'QUEUED')
redis.call('SET', KEYS[4], left)
return 'SECKILL_QUEUED'

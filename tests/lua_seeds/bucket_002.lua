-- Quoted from seed 002, for tests/lua_seeds.rs; the seed has lost its line ends. Its defects are the point.
-- KEYS[1]: 限流唯一标识 (如 {order:limit}:user:12345)
-- ARGV[1]: 桶容量上限 (Capacity)
-- ARGV[2]: 令牌生成速率 (Tokens per millisecond)
-- ARGV[3]: 当前时间戳 (毫秒)
-- ARGV[4]: 本次申请的令牌数 (通常为 1)
local key = KEYS[1]
local capacity = tonumber(ARGV[1])
local rate = tonumber(ARGV[2])
local now = tonumber(ARGV[3])
local requested = tonumber(ARGV[4])
-- 获取当前桶状态
local data = redis.call('HMGET', key, 'tokens', 'last_updated')
local tokens = tonumber(data[1])
local last_updated = tonumber(data[2])
if tokens == nil then
-- 首次访问，初始化满桶
tokens = capacity
last_updated = now
else
-- 计算时间差内应该新补充的令牌数
local delta = math.max(0, now - last_updated)
local generated = delta * rate
tokens = math.min(capacity, tokens + generated)
last_updated = now
end
-- 判断令牌是否充足
if tokens >= requested then
tokens = tokens - requested
redis.call('HMSET', key, 'tokens', tokens, 'last_updated', last_updated)
-- 设置合理的 TTL（例如将填满整个桶所需时间的 2 倍作为生命周期）
local fill_time = math.ceil(capacity / rate / 1000)
redis.call('EXPIRE', key, math.max(60, fill_time * 2))
return 1
-- 允许请求通过
else
-- 令牌不足，仅更新时间戳，拦截请求
redis.call('HSET', key, 'last_updated', last_updated)
return 0
-- 限流拦截
end

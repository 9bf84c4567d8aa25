-- Quoted from seed 002, for tests/lua_seeds.rs; the seed has lost its line ends. Its defects are the point.
-- KEYS[1]: 限流键 (例如 limit:user_10086:order)
-- ARGV[1]: 当前时间戳 (毫秒)
-- ARGV[2]: 窗口大小 (毫秒，例如 1000)
-- ARGV[3]: 窗口内最大允许请求数 (例如 5)
local key = KEYS[1]
local now = tonumber(ARGV[1])
local window = tonumber(ARGV[2])
local limit = tonumber(ARGV[3])
local clearBefore = now - window
-- 1. 移除滑动窗口之外的过期请求
redis.call('ZREMRANGEBYSCORE', key, 0, clearBefore)
-- 2. 统计当前窗口内已有请求数量
local currentRequests = redis.call('ZCARD', key)
-- 3. 判断是否超过限额
if currentRequests < limit then
-- 未超限，记录当前请求
redis.call('ZADD', key, now, now)
-- 设置键的过期时间，防止冷门 key 长期占用内存
redis.call('PEXPIRE', key, window)
return 1
-- 放行
else
return 0
-- 拦截
end

-- Quoted from seed 000, section 9.2, for tests/lua_seeds.rs; its defects are the point.
-- token_bucket.lua
--
-- KEYS[1] bucket key
--
-- ARGV[1] rate_per_sec
-- ARGV[2] capacity
-- ARGV[3] cost
-- ARGV[4] ttl_ms

if #KEYS ~= 1 then
    return {-1, 0, 0, 0}
end

local rate_per_sec = tonumber(ARGV[1])
local capacity = tonumber(ARGV[2])
local cost = tonumber(ARGV[3])
local ttl_ms = tonumber(ARGV[4])

if not rate_per_sec
    or not capacity
    or not cost
    or not ttl_ms
    or rate_per_sec <= 0
    or capacity <= 0
    or cost <= 0
    or ttl_ms <= 0 then
    return {-1, 0, 0, 0}
end

if cost > capacity then
    return {-2, 0, 0, 0}
end

-- 每个完整令牌使用 1000 个整数单位。
local scale = 1000
local capacity_milli = capacity * scale
local cost_milli = cost * scale

-- 使用 Redis 服务器时间，避免不同 Go 实例时钟偏差。
local now = redis.call("TIME")
local now_ms = now[1] * 1000 + math.floor(now[2] / 1000)

local state = redis.call(
    "HMGET",
    KEYS[1],
    "tokens_milli",
    "ts_ms"
)

local tokens_milli = tonumber(state[1])
local last_ms = tonumber(state[2])

if not tokens_milli then
    tokens_milli = capacity_milli
end

if not last_ms then
    last_ms = now_ms
end

-- Redis 时间理论上不会倒退；仍做防御性处理。
local elapsed_ms = now_ms - last_ms
if elapsed_ms < 0 then
    elapsed_ms = 0
end

-- rate_per_sec 个毫令牌每毫秒，
-- 等价于 rate_per_sec 个完整令牌每秒。
local refill_milli = elapsed_ms * rate_per_sec
tokens_milli = math.min(
    capacity_milli,
    tokens_milli + refill_milli
)

local allowed = 0
local retry_after_ms = 0

if tokens_milli >= cost_milli then
    allowed = 1
    tokens_milli = tokens_milli - cost_milli
else
    local deficit_milli = cost_milli - tokens_milli

    -- 向上取整。
    retry_after_ms = math.floor(
        (deficit_milli + rate_per_sec - 1)
        / rate_per_sec
    )
end

-- TTL 至少覆盖两次从空桶填满的时间。
local min_ttl_ms = math.ceil(
    capacity_milli / rate_per_sec
) * 2

if ttl_ms < min_ttl_ms then
    ttl_ms = min_ttl_ms
end

redis.call(
    "HSET",
    KEYS[1],
    "tokens_milli",
    tostring(tokens_milli),
    "ts_ms",
    tostring(now_ms)
)

redis.call("PEXPIRE", KEYS[1], ttl_ms)

return {
    allowed,
    tokens_milli,
    retry_after_ms,
    now_ms
}

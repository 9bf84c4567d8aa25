-- Quoted from seed 004, section 2, for tests/lua_seeds.rs; its defects are the point.
-- KEYS[1]: 库存key, ARGV[1]: 扣减数量, ARGV[2]: 当前时间戳（用于幂等标记）
if tonumber(redis.call('GET', KEYS[1])) >= tonumber(ARGV[1]) then
  redis.call('DECRBY', KEYS[1], ARGV[1])
  redis.call('HSET', 'order:pending:'..KEYS[1], ARGV[2], ARGV[1])
  return 1
else
  return 0
end

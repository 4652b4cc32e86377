-- KEYS: the lock, its channel, the latch of this call.
-- ARGV: the message, the lease to go on with, the owner, the command that publishes, the latch's life.
-- Answers nil to a stranger, 0 when holds are left, 1 when the lock is free.
local lock, channel, latch = KEYS[1], KEYS[2], KEYS[3]
local message, lease, owner, publish, latch_life = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local answered = redis.call('GET', latch)
if answered then
  return tonumber(answered)
end
if redis.call('HEXISTS', lock, owner) == 0 then
  return nil
end
local freed = 0
if redis.call('HINCRBY', lock, owner, -1) > 0 then
  redis.call('PEXPIRE', lock, lease)
else
  redis.call('DEL', lock)
  redis.call(publish, channel, message)
  freed = 1
end
redis.call('SET', latch, freed, 'PX', latch_life)
return freed

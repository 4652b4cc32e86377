-- KEYS: the lock. ARGV: the lease, the owner.
-- Answers nil when granted, else the lease that is left.
local lock, lease, owner = KEYS[1], ARGV[1], ARGV[2]
local held = redis.call('EXISTS', lock) == 1
if held and redis.call('HEXISTS', lock, owner) == 0 then
  return redis.call('PTTL', lock)
end
redis.call('HINCRBY', lock, owner, 1)
redis.call('PEXPIRE', lock, lease)
return nil

-- KEYS: the locks. ARGV: the lease, then each lock's owner.
-- Answers 1 or 0 for each lock: renewed, or not held by that owner.
local renewed = {}
for n, lock in ipairs(KEYS) do
  renewed[n] = redis.call('HEXISTS', lock, ARGV[n + 1])
  if renewed[n] == 1 then
    redis.call('PEXPIRE', lock, ARGV[1])
  end
end
return renewed

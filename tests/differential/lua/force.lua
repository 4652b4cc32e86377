-- KEYS: the lock, its channel. ARGV: the message, the command that publishes.
-- Answers 1 when there was a lock, else 0.
local lock, channel = KEYS[1], KEYS[2]
local message, publish = ARGV[1], ARGV[2]
local removed = redis.call('DEL', lock)
if removed == 1 then
  redis.call(publish, channel, message)
end
return removed

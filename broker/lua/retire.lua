#!lua flags=allow-oom
-- retire: forget a lost worker once nothing is pending for it any more.
--
-- Atomic because removing a consumer throws its pending entries away: the look and the removal
-- must be one step.
--
-- KEYS  1 lost   2 hash of the worker   3 bell of the worker   then all work streams of the model
-- ARGV  1 lost worker
-- RESULT 1 forgotten, 0 something is still pending
redis.call('SCARD', KEYS[1])  -- before anything is written: it may have the wrong type
for i = 4, #KEYS do
  local pending = redis.pcall('XPENDING', KEYS[i], 'worker', '-', '+', 1, ARGV[1])
  if not pending.err and #pending > 0 then return 0 end
end
for i = 4, #KEYS do
  redis.pcall('XGROUP', 'DELCONSUMER', KEYS[i], 'worker', ARGV[1])
end
redis.call('SREM', KEYS[1], ARGV[1])
redis.call('DEL', KEYS[2], KEYS[3])
return 1

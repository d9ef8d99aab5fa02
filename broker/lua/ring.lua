#!lua flags=allow-oom
-- ring: wake one worker.
--
-- Atomic because the bell of a dead worker must not be created again: nobody would remove it.
-- Runs when memory is full, so that a worker can stop then.
--
-- KEYS  1 workers   2 bell of the worker
-- ARGV  1 worker   2 how long the token stays, ms: a worker that dies before it hears leaves it
-- RESULT 1 rung, 0 the worker is not among the living
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end
-- A foreign key in the place of the bell gives way.
if type(redis.pcall('RPUSH', KEYS[2], '1')) ~= 'number' then
  redis.call('DEL', KEYS[2])
  redis.call('RPUSH', KEYS[2], '1')
end
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 1

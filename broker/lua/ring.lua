#!lua flags=allow-oom
-- ring: wake one worker.
--
-- Atomic because the bell of a worker that is gone must not be made anew: nobody would remove it.
-- Runs when memory is full, so that a worker can stop then.
--
-- KEYS  1 workers   2 bell of the worker
-- ARGV  1 worker
-- RESULT 1 rung, 0 the worker is not among the living
-- part: ring
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end
ring(KEYS[2])
return 1

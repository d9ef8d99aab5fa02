#!lua flags=allow-oom
-- inside: write down which requests are inside a worker's device process, for peers to know.
--
-- Atomic because the hash of a worker that was buried and forgotten must not be created again: nobody
-- would remove it. Runs when memory is full, as the beat does.
--
-- KEYS  1 workers   2 hash of the worker
-- ARGV  1 worker   2 members of due, separated by spaces
--       3 how long the hash stays where no beat has given it an end, ms
-- RESULT 1 written, 0 the worker is not among the living
-- part: announce
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end
announce(KEYS[2], 'inside', ARGV[2])
if redis.call('PTTL', KEYS[2]) < 0 then redis.call('PEXPIRE', KEYS[2], ARGV[3]) end
return 1

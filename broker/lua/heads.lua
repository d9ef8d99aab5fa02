#!lua flags=no-writes
-- heads: entries of a stream without what is large in them, for whoever only looks.
--
-- A script because a stream may hold gigabytes of inputs that a list of requests has no use for.
--
-- KEYS  1 stream
-- ARGV  1 the command: XRANGE or XREVRANGE   2 and 3 its two ends   4 how many at most
-- RESULT the entries; the value of `inputs` is '' in all of them
local entries = redis.call(ARGV[1], KEYS[1], ARGV[2], ARGV[3], 'COUNT', ARGV[4])
for _, entry in ipairs(entries) do
  for i = 1, #entry[2], 2 do
    if entry[2][i] == 'inputs' then entry[2][i + 1] = '' end
  end
end
return entries

#!lua flags=no-writes
-- heads: entries of a stream without their large fields, for programs that only list them.
--
-- A script because a stream may hold gigabytes of inputs that a list of requests has no use for.
--
-- KEYS  1 stream
-- ARGV  1 the command: XRANGE or XREVRANGE   2 and 3 its two ends   4 how many at most
--       5 fields of an entry, and 6 bytes of a value, that are shown at most
-- RESULT the entries; the value of `inputs` is '' in all of them, as are values that are too long
-- part: head
local entries = redis.call(ARGV[1], KEYS[1], ARGV[2], ARGV[3], 'COUNT', ARGV[4])
for _, entry in ipairs(entries) do
  entry[2] = head_of(entry[2], tonumber(ARGV[5]), tonumber(ARGV[6]))
end
return entries

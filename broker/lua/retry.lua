#!lua flags=allow-oom
-- retry: park a request that failed, to run again after a while.
--
-- Atomic because the request must lie in one place only: parked with its body, or pending for the
-- worker. Its deadline stays what it was. Runs when memory is full: it frees what it adds.
--
-- KEYS  1 due   2 later   3 parked   4 work stream   5 bell of the version
-- ARGV  1 worker   2 entry id   3 member of due   4 delay ms   5 attempt that comes next
--       6 retries left after that
-- RESULT PARKED, CLOSED (the request is over; the entry has ended), NOT_MINE,
--        STALE (what parks has the wrong type, or the entry has more parts than can be
--        parked; nothing has changed)
-- part: now
local due, later, parked, stream = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local worker, id, member = ARGV[1], ARGV[2], ARGV[3]

local pending = redis.pcall('XPENDING', stream, 'worker', id, id, 1)
if pending.err or not pending[1] or pending[1][2] ~= worker then return 'NOT_MINE' end

local entry = redis.call('XRANGE', stream, id, id)[1]
local outcome = 'CLOSED'
if entry and redis.call('ZSCORE', due, member) then
  local fields = {'queue', stream, 'bell', KEYS[5]}
  for i = 1, #entry[2], 2 do
    local name = entry[2][i]
    if name ~= 'attempt' and name ~= 'retries' then
      fields[#fields + 1], fields[#fields + 2] = name, entry[2][i + 1]
    end
    if i == 3 then -- behind id and tenant, which the scripts read by place
      for _, part in ipairs({'attempt', ARGV[5], 'retries', ARGV[6]}) do
        fields[#fields + 1] = part
      end
    end
  end
  -- Looked at first: nothing is to be left in `parked` that has no time. No router writes so much.
  if type(redis.pcall('ZCARD', later)) ~= 'number' or #fields > 1000 then return 'STALE' end
  local at = redis.pcall('XADD', parked, '*', unpack(fields))
  if type(at) ~= 'string' then return 'STALE' end
  redis.call('ZADD', later, now_ms() + tonumber(ARGV[4]), at)
  outcome = 'PARKED'
end
redis.call('XACK', stream, 'worker', id)
redis.call('XDEL', stream, id)
return outcome

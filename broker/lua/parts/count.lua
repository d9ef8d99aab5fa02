-- What a call has ended, in sums: added to the stats of the model at its end, all at once. They are no
-- part of the promise: a foreign key in their place gives way, and stops nothing.
local counted = {}
local function count(field, by)
  counted[field] = (counted[field] or 0) + by
end

local function keep_counts(stats)
  local fields, pairs_of = {}, {}
  for field, by in pairs(counted) do
    if by ~= 0 then fields[#fields + 1] = field end
  end
  if #fields == 0 then return end
  local known = redis.pcall('HMGET', stats, unpack(fields))
  if known.err then
    redis.call('DEL', stats)
    known = {}
  end
  for i, field in ipairs(fields) do
    local sum = counted[field] + whole(known[i], 0, 9e15, 0)
    pairs_of[2 * i - 1], pairs_of[2 * i] = field, string.format('%d', sum)
  end
  redis.call('HSET', stats, unpack(pairs_of))
end

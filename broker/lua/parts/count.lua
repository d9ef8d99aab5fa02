-- What a call has ended, in sums: added to the stats of the model at its end, a few fields a call. They
-- are no part of the promise: a foreign key in their place gives way, and stops nothing.
local counted = {}
local function count(field, by)
  counted[field] = (counted[field] or 0) + by
end

local function keep_counts(stats)
  for field, by in pairs(counted) do
    if type(redis.pcall('HINCRBY', stats, field, by)) ~= 'number' then
      redis.call('DEL', stats)
      redis.pcall('HINCRBY', stats, field, by)
    end
  end
end

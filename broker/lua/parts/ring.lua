-- Ring a bell that is not rung yet. A foreign key in its place gives way. It has an end, since
-- nobody removes the bell of a version or worker that is gone; who waits looks once a second anyway.
local function ring(bell)
  local length = redis.pcall('LLEN', bell)
  if type(length) ~= 'number' then
    redis.call('DEL', bell)
    length = 0
  end
  if length == 0 then
    redis.call('RPUSH', bell, '1')
    redis.call('PEXPIRE', bell, 60000)
  end
end

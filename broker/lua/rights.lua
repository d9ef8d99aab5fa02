#!lua flags=no-writes
-- rights: which of the commands that a program is going to send its user may not run.
--
-- A right that is missing inside another script only would end that script half-way.
--
-- ARGV  commands, the parts of each separated by a blank
-- RESULT the numbers, from 1, of those that the server would refuse
local missing = {}
for i, line in ipairs(ARGV) do
  local parts = {}
  for part in string.gmatch(line, '%S+') do parts[#parts + 1] = part end
  -- It raises an error for what the server does not know, or was told to forget.
  local is_known, is_allowed = pcall(redis.acl_check_cmd, unpack(parts))
  if not (is_known and is_allowed) then missing[#missing + 1] = i end
end
return missing

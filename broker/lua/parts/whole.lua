-- A number that somebody else may have written: whole and in decimal digits, brought into its range;
-- `default` where it is none. (`tonumber` alone takes '-40', '1e1', '0x3', '2.5', 'nan' and 'inf'.)
local function whole(text, lowest, highest, default)
  if type(text) ~= 'string' or not string.find(text, '^%d+$') then return default end
  return math.max(lowest, math.min(highest, tonumber(text)))
end

-- The fields of an entry without what is large in them: `inputs` is left empty, as is any value that
-- is over `longest`; of more fields than `most`, the others are left out.
local function head_of(fields, most, longest)
  local head = {}
  for i = 1, math.min(#fields, 2 * most), 2 do
    local name, value = fields[i], fields[i + 1]
    if #name <= longest then
      head[#head + 1] = name
      head[#head + 1] = (name == 'inputs' or #value > longest) and '' or value
    end
  end
  return head
end
